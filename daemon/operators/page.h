/* The page for people: page.html, which is linked into the daemon, and the policy that lets a browser run its own script and
 * style and nothing else. */
#ifndef OPERATORS_PAGE_H
#define OPERATORS_PAGE_H

#include "operators/http_text.h"

enum { PAGE_POLICY_CHARS = 512 };

struct http_text *page_text(void); /* one reference */
/* Content-Security-Policy, with the digests of the page's script and style. Returns `policy`. */
const char *page_policy(char policy[PAGE_POLICY_CHARS]);

#endif
