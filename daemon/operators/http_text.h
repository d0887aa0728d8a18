/* A text that several answers send: counted references, const once it is made. Any thread. */
#ifndef OPERATORS_HTTP_TEXT_H
#define OPERATORS_HTTP_TEXT_H

#include <stdatomic.h>
#include <stddef.h>

struct http_text {
    atomic_uint n_refs;
    size_t length;
    char *bytes;
};

struct http_text *http_text_make(char *bytes, size_t length); /* takes malloced bytes; one reference */
struct http_text *http_text_ref(struct http_text *text);
void http_text_unref(struct http_text *text); /* accepts NULL */

#endif
