#include "tests/support/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

void shell(const char *format, ...)
{
    char *command;
    va_list arguments;
    va_start(arguments, format);
    assert_true(vasprintf(&command, format, arguments) >= 0);
    va_end(arguments);
    if (system(command) != 0)
        fail_msg("%s", command);
    free(command);
}
