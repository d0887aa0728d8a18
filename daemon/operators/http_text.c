#include "operators/http_text.h"

#include <stdlib.h>

#include "base/memory.h"

struct http_text *http_text_make(char *bytes, size_t length)
{
    struct http_text *text = memory_alloc(sizeof *text);
    *text = (struct http_text){.n_refs = 1, .length = length, .bytes = bytes};
    return text;
}

struct http_text *http_text_ref(struct http_text *text)
{
    atomic_fetch_add(&text->n_refs, 1);
    return text;
}

void http_text_unref(struct http_text *text)
{
    if (!text || atomic_fetch_sub(&text->n_refs, 1) > 1)
        return;
    free(text->bytes);
    free(text);
}
