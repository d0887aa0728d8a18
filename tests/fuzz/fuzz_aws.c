/* What AWS credentials are read from besides XML: files of profiles, JSON of metadata services and credential processes,
 * commands of these, and the times in them. Reaches aws_profile.c and aws_keys.c. Whatever is accepted makes sense: no value
 * that is empty or holds a line break, keys that are whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/s3/aws_keys.h"
#include "source/s3/aws_process.h"
#include "source/s3/aws_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_value(const char *value)
{
    if (value && (!*value || strchr(value, '\n')))
        abort();
}

static void check_profiles(const char *config, const char *credentials)
{
    static const char *const names[] = {"default", "x", "services s", ""};
    static const char *const keys[] = {"region", "aws_access_key_id", "s3.endpoint_url", "source_profile", ""};
    struct aws_profiles *profiles = aws_profiles_parse(config, credentials);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const char *value = aws_profiles_get(profiles, names[i], keys[k]);
            check_value(value);
            if (value && !aws_profiles_has(profiles, names[i]))
                abort();
        }
        check_value(aws_profiles_endpoint(profiles, names[i], "s3"));
        check_value(aws_profiles_endpoint(profiles, names[i], "sts"));
    }
    aws_profiles_destroy(profiles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct aws_keys keys, copy;
    struct error error;
    int64_t unix_time;
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    char **words = aws_process_split(text);
    if (words && !words[0])
        abort();
    for (char **word = words; word && *word; word++) {
        if (strlen(*word) > size)
            abort();
    }
    free(words);
    check_profiles(text, NULL);
    check_profiles(NULL, text);
    check_profiles(text, text);
    if (aws_parse_time(text, &unix_time) == 0 &&
        (unix_time < -62135596800 || unix_time > 253402387200)) /* years 1 to 9999 */
        abort();
    if (aws_keys_parse_json(data, size, &keys, &error) == 0) {
        if (!keys.access_key || !keys.secret_key || strpbrk(keys.access_key, "\r\n") ||
            (keys.session_token && strpbrk(keys.session_token, "\r\n")))
            abort();
        aws_keys_copy(&copy, &keys);
        aws_keys_clear(&copy);
    } else if (!error.message[0]) {
        abort();
    }
    aws_keys_clear(&keys);
    free(text);
    return 0;
}
