#include "failure.h"

#include <stdlib.h>

enum { EXIT_FAILED = 1, EXIT_RETRY = 3, EXIT_LATE = 124 };

int failure_exit_status(const struct error *error)
{
    switch (error->code) {
    case ERROR_UNAVAILABLE:
    case ERROR_ABORTED:
        return EXIT_RETRY;
    case ERROR_DEADLINE_EXCEEDED:
        return EXIT_LATE;
    default:
        return EXIT_FAILED;
    }
}

void failure_print(const struct error *error)
{
    fprintf(stderr, "tensorcast: %s: ", error_code_name(error->code));
    for (const char *at = error->message; *at; at++) { /* of other processes, too: none of them may steer the terminal */
        bool is_control = (unsigned char)*at < 0x20 || *at == 0x7f;
        fputs(*at == '\n' ? "\n  " : is_control ? " " : "", stderr); /* a further line is no error line of ours */
        if (!is_control)
            fputc(*at, stderr);
    }
    fputc('\n', stderr);
}

void failure_put(struct json_writer *json, const struct error *error)
{
    const char *value;
    json_put_open(json, "error", '{');
    json_put_text(json, "code", error_code_name(error->code));
    json_put_text(json, "reason", error->reason[0] ? error->reason : error_code_name(error->code));
    json_put_text(json, "message", error->message);
    json_put_open(json, "metadata", '{');
    for (const char *key = NULL; (key = error_next_note(error, key, &value)) != NULL;)
        json_put_text(json, key, value);
    json_write_close(json, '}');
    json_write_close(json, '}');
}

void failure_print_json(const struct error *error, FILE *out)
{
    struct json_writer json = {0};
    json_write_open(&json, '{');
    failure_put(&json, error);
    json_write_close(&json, '}');
    fprintf(out, "%s\n", json.text);
    free(json.text);
}
