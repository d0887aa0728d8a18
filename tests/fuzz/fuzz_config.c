/* The configuration reader: config_parse(), and for what it accepts config_print(), whose text must read back and print the
 * same. Reaches config_yaml.c, config.c, config_value.c and config_print.c. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "config/config.h"
#include "source/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *printed(const struct config *config, size_t *length)
{
    char *text;
    FILE *out = open_memstream(&text, length);
    config_print(config, NULL, out);
    fclose(out);
    return text;
}

static void check_round_trip(const struct config *config)
{
    struct error error;
    size_t n_first, n_second;
    char *first = printed(config, &n_first);
    const struct config *again = config_parse(first, n_first, "printed.yaml", &error);
    if (!again) {
        fprintf(stderr, "%s\n%s\n", first, error.message);
        abort();
    }
    char *second = printed(again, &n_second);
    if (strcmp(first, second) != 0)
        abort();
    free(first);
    free(second);
    config_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error error;
    store_find(""); /* links the stores, whose sections are a part of the configuration */
    const struct config *config = config_parse((const char *)data, size, "fuzz.yaml", &error);
    if (config)
        check_round_trip(config);
    else if (error.code == ERROR_OK || !error.message[0] || !text_is_utf8(error.message, strlen(error.message)))
        abort();
    config_destroy(config);
    return 0;
}
