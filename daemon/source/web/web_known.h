/* What web servers said of files not long ago, so that the next question can be conditional: an unchanged file then costs
 * one small answer and no body. Bounded: a table of fixed size, newer entries displace others. Any thread. */
#ifndef SOURCE_WEB_KNOWN_H
#define SOURCE_WEB_KNOWN_H

#include <stdbool.h>
#include <stdint.h>

struct web_fact { /* texts are malloced; NULL = the server does not say */
    char *etag, *last_modified;
    uint64_t size_bytes;
    bool comes_whole; /* the server answered a question for a part with all of it */
};

struct web_known;
struct web_known *web_known_create(void);
void web_known_destroy(struct web_known *known);
bool web_known_find(struct web_known *known, const char *url, struct web_fact *fact); /* a copy: web_fact_clear() */
void web_known_set(struct web_known *known, const char *url,
                   const struct web_fact *fact); /* copies; not texts of more than 600 */
void web_fact_clear(struct web_fact *fact);

#endif
