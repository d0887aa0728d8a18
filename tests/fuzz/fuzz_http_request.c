/* What the port of operators itself reads of a request, Host and Accept, and addresses as the configuration has them. Reaches
 * http_request.c and tcp_listener.c. Input: a text, of which nothing but this host's own names is taken for one, and which an
 * address prints again as it was. */
#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "operators/http_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool good)
{
    if (!good)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tcp_address loopback, all, given, again;
    char *text = malloc(size + 1), shown[TCP_ADDRESS_CHARS];
    memcpy(text, data, size);
    text[size] = '\0';
    check(tcp_address_parse("127.0.0.1:9464", &loopback) && tcp_address_parse("[::]:9464", &all));
    bool is_own = http_host_is_own(text, &loopback), is_number = http_host_is_own(text, &all);
    check(!is_own || is_number); /* where all addresses are served, no fewer names are */
    if (is_own && strncasecmp(text, "localhost", strlen("localhost")) != 0)
        for (size_t i = 0; text[i] && text[i] != ']' && text[i] != ':' && text[0] != '['; i++)
            check(isdigit((unsigned char)text[i]) || text[i] == '.'); /* no other name */
    http_accepts_openmetrics(text);
    if (tcp_address_parse(text, &given)) {
        check(tcp_address_parse(tcp_address_print(&given, shown), &again));
        check(given.bytes == again.bytes && memcmp(&given.socket, &again.socket, given.bytes) == 0);
    }
    free(text);
    return 0;
}
