#include "export/indent_json.h"

#include <stdbool.h>
#include <string.h>

#include "base/memory.h"

struct indenting {
    char *text;
    size_t length, room;
};

static void put_char(struct indenting *out, char c)
{
    ARRAY_RESERVE(out->text, out->length, out->room);
    out->text[out->length++] = c;
}

static void put_line(struct indenting *out, size_t depth)
{
    put_char(out, '\n');
    for (size_t i = 0; i < 2 * depth; i++)
        put_char(out, ' ');
}

/* A bracket that is closed at once stays as it is. */
static void put_bracket(struct indenting *out, char c, char before, size_t depth)
{
    bool is_opening = c == '{' || c == '[', is_empty = before == '{' || before == '[';
    if (!is_opening && !is_empty)
        put_line(out, depth);
    put_char(out, c);
}

char *indent_json(const char *text, size_t length, size_t depth)
{
    struct indenting out = {0};
    bool in_string = false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i], before = i ? text[i - 1] : '\0';
        bool is_first = !in_string && (before == '{' || before == '[') && c != '}' && c != ']';
        if (is_first)
            put_line(&out, depth);
        if (in_string || c == '"') {
            put_char(&out, c);
            if (in_string && c == '\\')
                put_char(&out, text[++i]);
            else if (c == '"')
                in_string = !in_string;
        } else if (c == '{' || c == '[') {
            put_bracket(&out, c, before, depth++);
        } else if (c == '}' || c == ']') {
            put_bracket(&out, c, before, --depth);
        } else {
            put_char(&out, c);
            if (c == ',')
                put_line(&out, depth);
            else if (c == ':')
                put_char(&out, ' ');
        }
    }
    put_char(&out, '\0');
    return out.text;
}
