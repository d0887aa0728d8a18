/* A shell command that has to succeed, printed as by printf(). */
#ifndef TESTS_SUPPORT_SHELL_H
#define TESTS_SUPPORT_SHELL_H

void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
