/* Runs a target over the files of the directories that are named: the corpus as a test. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static int replay(const char *folder, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        return 1;
    long size = ftell(file);
    rewind(file);
    /* Of just this size, so that a sanitizer sees a read past it. */
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (data == NULL || size < 0 || fread(data, 1, (size_t)size, file) != (size_t)size)
        return 1;
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return 0;
}

int main(int count, char **arguments)
{
    int files = 0;
    for (int i = 1; i < count; i++) {
        DIR *folder = opendir(arguments[i]);
        if (folder == NULL) {
            perror(arguments[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            if (entry->d_name[0] == '.')
                continue;
            if (replay(arguments[i], entry->d_name) != 0) {
                (void)fprintf(stderr, "cannot read %s/%s\n", arguments[i], entry->d_name);
                return 1;
            }
            files++;
        }
        (void)closedir(folder);
    }
    printf("%d files replayed\n", files);
    return files > 0 ? 0 : 1;
}
