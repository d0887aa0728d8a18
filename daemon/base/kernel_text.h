/* What the kernel says in small text files of /proc and /sys. Any thread; reads a file or two, some 10 us each. */
#ifndef BASE_KERNEL_TEXT_H
#define BASE_KERNEL_TEXT_H

#include <stdint.h>

/* The sum of the numbers in lines that begin with one of these names ("MemTotal:"), which end with NULL. 0: there are none. */
uint64_t kernel_text_sum(const char *path, const char *const *names);
uint64_t kernel_text_number(const char *path); /* UINT64_MAX for "max", and for a file that is not there */

#endif
