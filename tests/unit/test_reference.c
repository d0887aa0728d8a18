/* What people write for an artifact; the table that Python's test reads as well. */
#include "tests/support/unit.h"

#include "base/reference.h"
#include "base/text.h"

static const struct reference_base base = {"/work/here", "/home/me"};

/* \xHH in place. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        if (from[0] == '\\' && from[1] == 'x') {
            *to = (char)(text_hex_digit(from[2]) << 4 | text_hex_digit(from[3]));
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static void check(const char *text, const char *expected, const struct reference_base *where)
{
    struct error error = {0};
    struct arena arena;
    arena_init(&arena, 0);
    const char *reference = reference_parse(text, where, &arena, &error);
    bool is_right = reference
                        ? strcmp(reference, expected) == 0
                        : expected[0] == '!' && strstr(error.message, expected + 1) && !strstr(error.message, "secret");
    if (!is_right)
        fail_msg("'%s' is '%s' (%s), expected '%s'", text, reference ? reference : "", error.message, expected);
    if (!reference) {
        assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
        assert_string_equal(error.reason, "BAD_REFERENCE");
    }
    arena_fini(&arena);
}

TEST(every_line_of_the_table_holds)
{
    char line[512];
    int n_cases = 0;
    FILE *table = fopen("tests/golden/references.txt", "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table)) {
        char *tab = strchr(line, '\t');
        if (line[0] == '#')
            continue;
        assert_non_null(tab);
        *tab = '\0';
        tab[strcspn(tab + 1, "\n") + 1] = '\0';
        unescape(line);
        unescape(tab + 1);
        check(line, tab + 1, &base);
        n_cases++;
    }
    fclose(table);
    assert_true(n_cases > 50);
}

TEST(what_is_not_known_is_not_guessed)
{
    static const struct reference_base nothing = {0}, odd = {"", "home"};
    check("/models", "disk:/models", &nothing);
    check("./models", "!absolute", &nothing);
    check("~/models", "!HOME", &nothing);
    check("~/models", "!HOME", &odd);
    check("./models", "!absolute", &odd);
}

TEST(only_what_begins_with_dots_is_relative)
{
    assert_true(reference_is_relative("./x") && reference_is_relative("../x") && reference_is_relative(".") &&
                reference_is_relative(".."));
    assert_false(reference_is_relative("x") || reference_is_relative("/x") || reference_is_relative(".x") ||
                 reference_is_relative("...") || reference_is_relative("disk:./x"));
}

TEST(what_is_neither_a_path_nor_of_a_source_is_bare)
{
    static const char *const bare[] = {"x", "models/llama", "a/b:c", ".x", "...", "~you", "", ":x"};
    static const char *const others[] = {"/x", "./x", "..", "~", "~/x", "disk:x", "hf://a/b", "a:b", "//u:p@h/x"};
    for (size_t i = 0; i < sizeof bare / sizeof bare[0]; i++)
        assert_true(reference_is_bare(bare[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(reference_is_bare(others[i]));
}

TEST(a_revision_of_the_hub_ends_before_the_path)
{
    static const struct {
        const char *text, *revision, *rest;
    } cases[] = {{"main", "main", ""},
                 {"main/sub/file", "main", "/sub/file"},
                 {"refs/pr/7", "refs/pr/7", ""},
                 {"refs/pr/7/sub", "refs/pr/7", "/sub"},
                 {"refs", "refs", ""},
                 {"a%2Fb%2fc/sub", "a/b/c", "/sub"},
                 {"a%2", "a%2", ""},
                 {"/sub", "", "/sub"},
                 {"", "", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *at = cases[i].text;
        char *revision = reference_take_hub_revision(&at);
        assert_string_equal(revision, cases[i].revision);
        assert_string_equal(at, cases[i].rest);
        free(revision);
    }
}

TEST(the_folder_of_a_file_is_what_is_before_its_name)
{
    static const char *const cases[][2] = {{"disk:/models/m/model.safetensors", "disk:/models/m"},
                                           {"hf://org/m@main/a.safetensors", "hf://org/m@main"},
                                           {"gs://bucket/a.safetensors", "gs://bucket"}};
    static const char *const none[] = {"disk:/models/m", "https://h/a.safetensors?sig=1", "mem:a.safetensors", ""};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = reference_folder_of(cases[i][0]);
        assert_string_equal(folder, cases[i][1]);
        free(folder);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(reference_folder_of(none[i]));
}
