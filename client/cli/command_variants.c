#include <stdio.h>
#include <stdlib.h>

#include "base/json.h"
#include "command.h"

static void print_json(void)
{
    struct json_writer json = {0};
    const char *name, *summary;
    json_write_open(&json, '{');
    json_put_open(&json, "variants", '[');
    for (size_t i = 0; (name = tc_builtin_variant(i, &summary)); i++) {
        json_write_open(&json, '{');
        json_put_text(&json, "name", name);
        json_put_text(&json, "summary", summary);
        json_write_close(&json, '}');
    }
    json_write_close(&json, ']');
    json_write_close(&json, '}');
    puts(json.text);
    free(json.text);
}

int command_variants(struct backend *backend, struct error *error)
{
    const char *name, *summary;
    (void)error;
    if (backend->args->json) {
        print_json();
        return 0;
    }
    for (size_t i = 0; (name = tc_builtin_variant(i, &summary)); i++)
        printf("%-24s %s\n", name, summary);
    return 0;
}
