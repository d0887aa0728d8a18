#include "resolve/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

enum { NOTE_CHARS = 1000 };

static void add_text(struct notes *notes, const char *text)
{
    ARRAY_RESERVE(notes->texts, notes->n, notes->capacity);
    notes->texts[notes->n++] = memory_copy_text(text);
}

void notes_add(struct notes *notes, const char *format, ...)
{
    char text[NOTE_CHARS];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add_text(notes, text);
}

void notes_append(struct notes *notes, const struct notes *others)
{
    for (size_t i = 0; i < others->n; i++)
        add_text(notes, others->texts[i]);
}

void notes_fini(struct notes *notes)
{
    for (size_t i = 0; i < notes->n; i++)
        free(notes->texts[i]);
    free(notes->texts);
    *notes = (struct notes){0};
}
