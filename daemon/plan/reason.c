#include "plan/reason.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define REASON_ROW(id, name, shape, of, advice) {name, shape, of, advice},
const struct reason_row reason_rows[REASON_COUNT] = {REASONS(REASON_ROW)};

struct reason reason_of(enum reason_kind kind)
{
    struct reason reason = {.kind = kind};
    snprintf(reason.text, sizeof reason.text, "%s", reason_rows[kind].name);
    return reason;
}

struct reason reason_with(enum reason_kind kind, const char *format, ...)
{
    struct reason reason = {.kind = kind};
    int used = snprintf(reason.text, sizeof reason.text, "%s:", reason_rows[kind].name);
    va_list values;
    va_start(values, format);
    vsnprintf(reason.text + used, sizeof reason.text - (size_t)used, format, values);
    va_end(values);
    return reason;
}
