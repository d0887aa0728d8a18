/* Reading ahead; see http_tls.h. */
#include "source/http/http_tls.h"

#include <openssl/ssl.h>
#include <string.h>

enum { AHEAD_BYTES = 64 << 10 /* of every connection; 256 KiB falls out of the caches */ };

static CURLcode set_up(CURL *easy, void *context, void *data)
{
    (void)easy, (void)data;
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, AHEAD_BYTES);
    return CURLE_OK;
}

void http_tls_read_ahead(CURL *easy)
{
    const char *library = curl_version_info(CURLVERSION_NOW)->ssl_version;
    if (library && strncmp(library, "OpenSSL/", 8) == 0)
        curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, set_up);
}
