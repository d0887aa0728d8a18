#include "operators/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/digest.h"
#include "base/memory.h"

extern const char _binary_page_html_start[], _binary_page_html_end[];

struct http_text *page_text(void)
{
    size_t length = (size_t)(_binary_page_html_end - _binary_page_html_start);
    return http_text_make(memory_copy(_binary_page_html_start, length), length);
}

/* Of what stands between the page's one <name> and </name>. */
static void sum_element(const char *name, char base64[DIGEST_HEX_CHARS])
{
    unsigned char sum[DIGEST_BYTES];
    char open[16], close[16];
    size_t length = (size_t)(_binary_page_html_end - _binary_page_html_start);
    snprintf(open, sizeof open, "<%s>", name);
    snprintf(close, sizeof close, "</%s>", name);
    const char *from = memmem(_binary_page_html_start, length, open, strlen(open));
    const char *to = from ? memmem(from, (size_t)(_binary_page_html_end - from), close, strlen(close)) : NULL;
    if (!to)
        abort(); /* the page is ours */
    from += strlen(open);
    struct digest *digest = digest_create();
    digest_add(digest, from, (size_t)(to - from));
    digest_finish(digest, sum);
    base64_encode_padded(sum, sizeof sum, base64);
}

const char *page_policy(char policy[PAGE_POLICY_CHARS])
{
    char script[DIGEST_HEX_CHARS], style[DIGEST_HEX_CHARS];
    sum_element("script", script);
    sum_element("style", style);
    snprintf(policy, PAGE_POLICY_CHARS,
             "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; img-src data:; "
             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             script, style);
    return policy;
}
