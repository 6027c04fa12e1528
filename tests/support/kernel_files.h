/* Files of /proc and /sys made up by a test, below a root of its own. */
#ifndef PLIM_TESTS_KERNEL_FILES_H
#define PLIM_TESTS_KERNEL_FILES_H

/* Writes root + path anew, with the directories above it. A file that is open shows the new text.
 */
void test_kernel_put(const char *root, const char *path, const char *text);

#endif
