#include "support/kernel_files.h"

#include "support/harness.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void test_kernel_put(const char *root, const char *path, const char *text)
{
    char name[1024];
    (void)snprintf(name, sizeof name, "%s%s", root, path);
    for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(name, 0755);
        *slash = '/';
    }
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}
