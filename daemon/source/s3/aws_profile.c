/* One pass over the lines. Sections become profile names ("profile x" in the config file, "x" in the credentials file);
 * an indented line below "s3 =" is kept as "s3.endpoint_url". Lines that mean nothing are ignored, as other tools do. */
#include "source/s3/aws_profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "source/environment.h"
#include "source/secret.h"

enum { MAX_FILE_BYTES = 1 << 20, MAX_SETTINGS = 20000 };

struct setting {
    enum aws_file file;
    char *section, *key, *value;
};

struct aws_profiles {
    struct setting *settings;
    size_t n_settings, capacity;
    char *paths[AWS_N_FILES];
    char *problem;
};

/* --- lines --- */

struct reader {
    struct aws_profiles *profiles;
    enum aws_file file;
    char *section; /* NULL before the first, and in sections that are none of ours */
    char *parent;  /* of indented lines: "s3"; NULL = the last line had a value */
};

static char *trim_blanks(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length && strchr(" \t\r", text[length - 1]))
        text[--length] = '\0';
    return text;
}

static char *without_quotes(char *text)
{
    size_t length = strlen(text);
    if (length >= 2 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0]) {
        text[length - 1] = '\0';
        text++;
    }
    return text;
}

/* "[profile x]" -> "x", "[services x]" stays "services x". */
static void begin_section(struct reader *reader, char *line)
{
    char *close = strchr(line, ']'), *name;
    free(reader->section);
    free(reader->parent);
    reader->section = reader->parent = NULL;
    if (!close)
        return;
    *close = '\0';
    name = trim_blanks(line + 1);
    bool is_profile = strncmp(name, "profile", 7) == 0 && isspace((unsigned char)name[7]);
    bool is_services = strncmp(name, "services", 8) == 0 && isspace((unsigned char)name[8]);
    if (reader->file == AWS_FILE_CONFIG && is_profile)
        reader->section = memory_copy_text(without_quotes(trim_blanks(name + 7)));
    else if (reader->file == AWS_FILE_CONFIG && is_services)
        reader->section = memory_print("services %s", without_quotes(trim_blanks(name + 8)));
    else if (reader->file == AWS_FILE_CREDENTIALS || strcmp(name, "default") == 0)
        reader->section = memory_copy_text(name);
}

static void add_setting(struct reader *reader, const char *key, const char *value)
{
    struct aws_profiles *profiles = reader->profiles;
    if (profiles->n_settings == MAX_SETTINGS) {
        if (!profiles->problem)
            profiles->problem =
                memory_print("the AWS configuration has more than %d settings; the rest is not read", MAX_SETTINGS);
        return;
    }
    ARRAY_RESERVE(profiles->settings, profiles->n_settings, profiles->capacity);
    profiles->settings[profiles->n_settings++] =
        (struct setting){reader->file, memory_copy_text(reader->section), memory_copy_text(key), memory_copy_text(value)};
}

static void read_setting(struct reader *reader, char *line, bool indented)
{
    char *equals = strchr(line, '=');
    if (!equals || !reader->section || (indented && !reader->parent))
        return;
    *equals = '\0';
    char *key = trim_blanks(line), *value = trim_blanks(equals + 1);
    for (char *c = key; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    if (indented) {
        char *nested = memory_print("%s.%s", reader->parent, key);
        add_setting(reader, nested, value);
        free(nested);
        return;
    }
    free(reader->parent);
    reader->parent = *value ? NULL : memory_copy_text(key);
    add_setting(reader, key, value);
}

static void read_text(struct aws_profiles *profiles, enum aws_file file, const char *text)
{
    struct reader reader = {.profiles = profiles, .file = file};
    char *copy = memory_copy_text(text), *rest = copy;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *at = trim_blanks(line);
        bool indented = at > line && (*line == ' ' || *line == '\t');
        if (*at == '[')
            begin_section(&reader, at);
        else if (*at && *at != '#' && *at != ';')
            read_setting(&reader, at, indented);
    }
    secret_free(copy);
    free(reader.section);
    free(reader.parent);
}

/* --- files --- */

static char *path_of(const char *variable, const char *below_home)
{
    const char *path = getenv(variable), *home = getenv("HOME");
    if (path && path[0] == '~' && path[1] == '/' && home)
        return memory_print("%s%s", home, path + 1);
    if (path && *path)
        return memory_copy_text(path);
    return home && *home ? memory_print("%s/%s", home, below_home) : memory_copy_text("");
}

static void read_profile_file(struct aws_profiles *profiles, enum aws_file file, const char *variable)
{
    const char *path = profiles->paths[file], *complaint = NULL;
    size_t length;
    /* a credential_process there would be run by root, an endpoint be believed */
    bool is_foreign = !environment_get(variable) && environment_home_is_foreign();
    char *text = *path && !is_foreign ? secret_read_file(path, MAX_FILE_BYTES, &length) : NULL;
    if (is_foreign && access(path, F_OK) == 0)
        complaint = file == AWS_FILE_CONFIG
                        ? "not read by root, since HOME is another user's (sudo -H, or AWS_CONFIG_FILE)"
                        : "not read by root, since HOME is another user's (sudo -H, or AWS_SHARED_CREDENTIALS_FILE)";
    else if (!text && !is_foreign && *path && errno != ENOENT && errno != ENOTDIR)
        complaint = strerror(errno);
    else if (text && length > MAX_FILE_BYTES)
        complaint = length == SIZE_MAX ? "cannot be read" : "larger than 1 MiB";
    if (complaint) {
        free(profiles->problem);
        profiles->problem = memory_print("%s: %s", text_show(path), complaint);
    } else if (text) {
        read_text(profiles, file, text);
    }
    secret_free(text);
}

struct aws_profiles *aws_profiles_load(void)
{
    struct aws_profiles *profiles = memory_alloc(sizeof *profiles);
    profiles->paths[AWS_FILE_CONFIG] = path_of("AWS_CONFIG_FILE", ".aws/config");
    profiles->paths[AWS_FILE_CREDENTIALS] = path_of("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    read_profile_file(profiles, AWS_FILE_CONFIG, "AWS_CONFIG_FILE");
    read_profile_file(profiles, AWS_FILE_CREDENTIALS, "AWS_SHARED_CREDENTIALS_FILE");
    return profiles;
}

struct aws_profiles *aws_profiles_parse(const char *config, const char *credentials)
{
    struct aws_profiles *profiles = memory_alloc(sizeof *profiles);
    read_text(profiles, AWS_FILE_CONFIG, config ? config : "");
    read_text(profiles, AWS_FILE_CREDENTIALS, credentials ? credentials : "");
    return profiles;
}

void aws_profiles_destroy(struct aws_profiles *profiles)
{
    if (!profiles)
        return;
    for (size_t i = 0; i < profiles->n_settings; i++) {
        struct setting *setting = &profiles->settings[i];
        free(setting->section);
        free(setting->key);
        secret_free(setting->value);
    }
    free(profiles->settings);
    for (int file = 0; file < AWS_N_FILES; file++)
        free(profiles->paths[file]);
    free(profiles->problem);
    free(profiles);
}

/* --- look-ups --- */

bool aws_profiles_has(const struct aws_profiles *profiles, const char *profile)
{
    for (size_t i = 0; i < profiles->n_settings; i++) {
        if (strcmp(profiles->settings[i].section, profile) == 0)
            return true;
    }
    return false;
}

const char *aws_profiles_get_from(const struct aws_profiles *profiles, enum aws_file file, const char *profile,
                                  const char *key)
{
    const char *value = NULL;
    for (size_t i = 0; i < profiles->n_settings; i++) { /* of two the last counts */
        const struct setting *setting = &profiles->settings[i];
        if (setting->file == file && strcmp(setting->section, profile) == 0 && strcmp(setting->key, key) == 0)
            value = setting->value;
    }
    return value && *value ? value : NULL;
}

const char *aws_profiles_get(const struct aws_profiles *profiles, const char *profile, const char *key)
{
    const char *value = aws_profiles_get_from(profiles, AWS_FILE_CREDENTIALS, profile, key);
    return value ? value : aws_profiles_get_from(profiles, AWS_FILE_CONFIG, profile, key);
}

bool aws_profiles_any_has(const struct aws_profiles *profiles, const char *key)
{
    for (size_t i = 0; i < profiles->n_settings; i++)
        if (strcmp(profiles->settings[i].key, key) == 0)
            return true;
    return false;
}

const char *aws_profiles_endpoint(const struct aws_profiles *profiles, const char *profile, const char *service)
{
    const char *services = aws_profiles_get(profiles, profile, "services"), *url = NULL;
    if (services) {
        char *section = memory_print("services %s", services), *key = memory_print("%s.endpoint_url", service);
        url = aws_profiles_get_from(profiles, AWS_FILE_CONFIG, section, key);
        free(section);
        free(key);
    }
    return url ? url : aws_profiles_get(profiles, profile, "endpoint_url");
}

const char *aws_profiles_path(const struct aws_profiles *profiles, enum aws_file file)
{
    return profiles->paths[file] ? profiles->paths[file] : "";
}

const char *aws_profiles_problem(const struct aws_profiles *profiles)
{
    return profiles->problem;
}
