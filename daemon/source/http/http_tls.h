/* TLS as libcurl makes it, but for one thing that libcurl has no option for. */
#ifndef SOURCE_HTTP_TLS_H
#define SOURCE_HTTP_TLS_H

#include <curl/curl.h>

/* OpenSSL asks the socket for the five bytes of each record's head, then for its 16 KiB. From now on it asks for as much as
 * there is. Only for a handle that is read until CURLE_AGAIN: libcurl's own transfers (before 8.15) wait for a socket whose
 * bytes OpenSSL already has. Does nothing when libcurl has its TLS from elsewhere. */
void http_tls_read_ahead(CURL *easy);

#endif
