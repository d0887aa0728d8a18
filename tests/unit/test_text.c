/* Sizes, durations, names, globs: what is written is what is meant, and what is shown can be read back. */
#include "tests/support/unit.h"

#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

TEST(sizes_are_powers_of_1024_in_every_spelling)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"4096", 4096},
        {"1B", 1},
        {"8GB", 8ull << 30},
        {"8gb", 8ull << 30},
        {"8G", 8ull << 30},
        {"64MiB", 64 << 20},
        {"64mib", 64 << 20},
        {"1.5 GiB", 3ull << 29},
        {"0.5 MB", 1 << 19},
        {"0.5   MB", 1 << 19},
        {"16KB", 16 << 10},
        {"1_000KB", 1000 << 10},
        {"1_0_0", 100},
        {"1TB", 1ull << 40},
        {"2PiB", 1ull << 51},
        {"0MB", 0},
        {"0.0GB", 0},
        {"007", 7},
        {"0.1MB", 104857},
        {"1.0009765625KB", 1025},
        {"18446744073709551615", UINT64_MAX},
        {"16383PiB", 16383ull << 50},
        {"0.33333333333333333333333333333333333333333KB", 341},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes = 77;
        if (text_parse_bytes(cases[i].text, &bytes) < 0 || bytes != cases[i].bytes)
            fail_msg("%s gives %llu", cases[i].text, (unsigned long long)bytes);
    }
}

TEST(what_is_no_size_or_too_large_is_refused)
{
    static const char *const cases[] = {
        "",
        " ",
        "B",
        "GB",
        "lots",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1XB",
        "1 G B",
        "1GBx",
        "1.GB",
        ".5GB",
        "1..5GB",
        "1.5.5GB",
        "1e9",
        "0x10",
        "_1",
        "1_",
        "1__0",
        "1_GB",
        "1.5",
        "1.0B",
        "0.0001KB",
        "18446744073709551616",
        "16384PiB",
        "99999999999TB",
        "16777216TiB",
        "1,5GB",
        "1\tGB",
        "1GiBB",
        "inf",
        "nan",
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint64_t bytes;
        if (text_parse_bytes(cases[i], &bytes) == 0)
            fail_msg("'%s' was taken for a size", cases[i]);
    }
}

TEST(durations_need_a_unit_unless_they_are_zero)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {{"15s", 15000}, {"250ms", 250}, {"2m", 120000}, {"1h", 3600000},   {"1.5s", 1500}, {"1.5 h", 5400000},
                {"0s", 0},      {"0", 0},       {"0.001s", 1},  {"1_000ms", 1000}, {"10M", 600000}};
    static const char *const bad[] = {
        "15", "0.5", "", "s", "5 weeks", "1d", "-1s", "0.0004s", "0.5ms", "1.5", "99999999999999999h", "1s2", "00 "};
    for (size_t i = 0; i < COUNT(good); i++) {
        uint64_t ms = 77;
        if (text_parse_duration_ms(good[i].text, &ms) < 0 || ms != good[i].ms)
            fail_msg("%s gives %llu ms", good[i].text, (unsigned long long)ms);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint64_t ms;
        if (text_parse_duration_ms(bad[i], &ms) == 0)
            fail_msg("'%s' was taken for a duration", bad[i]);
    }
}

TEST(a_formatted_number_parses_back_to_itself)
{
    char text[TEXT_SIZE_CHARS];
    uint64_t back;
    for (uint64_t seed = 1, i = 0; i < 5000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t value = (seed >> (i % 64)) << (i % 7 * 9);
        assert_int_equal(text_parse_bytes(text_format_bytes(value, text), &back), 0);
        assert_true(back == value);
        assert_int_equal(text_parse_duration_ms(text_format_duration_ms(value, text), &back), 0);
        assert_true(back == value);
    }
}

TEST(numbers_are_shown_short)
{
    char text[TEXT_SIZE_CHARS];
    assert_string_equal(text_format_bytes(0, text), "0");
    assert_string_equal(text_format_bytes(4097, text), "4097");
    assert_string_equal(text_format_bytes(1536 << 10, text), "1536KiB");
    assert_string_equal(text_format_bytes(64 << 20, text), "64MiB");
    assert_string_equal(text_format_bytes(1ull << 50, text), "1024TiB");
    assert_string_equal(text_format_duration_ms(0, text), "0s");
    assert_string_equal(text_format_duration_ms(250, text), "250ms");
    assert_string_equal(text_format_duration_ms(10000, text), "10s");
    assert_string_equal(text_format_duration_ms(5400000, text), "90m");
    assert_string_equal(text_format_duration_ms(7200000, text), "2h");
}

TEST(people_get_three_digits_and_a_unit)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {812, "812 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {4016029696, "3.74 GiB"},
                 {10240, "10.0 KiB"},
                 {102400, "100 KiB"},
                 {1048575, "1.00 MiB"},
                 {(1 << 20) - 513, "1023 KiB"},
                 {UINT64_MAX, "16.0 EiB"}};
    char text[TEXT_SIZE_CHARS];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(text_people_bytes(cases[i].bytes, text), cases[i].text);
}

TEST(rates_have_the_units_of_sizes)
{
    static const struct {
        double bytes_per_s;
        const char *text;
    } cases[] = {{-1, "0 B/s"},        {0, "0 B/s"},
                 {0.4, "0 B/s"},       {512, "512 B/s"},
                 {8400, "8.20 KiB/s"}, {22.12e6, "21.1 MiB/s"},
                 {1e9, "954 MiB/s"},   {2147483648.0, "2.00 GiB/s"},
                 {1e300, "8.00 EiB/s"}};
    char text[TEXT_SIZE_CHARS];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(text_people_rate(cases[i].bytes_per_s, text), cases[i].text);
}

TEST(names_are_escaped_so_that_no_terminal_is_harmed)
{
    static const struct {
        const char *name;
        size_t length;
        const char *shown;
    } cases[] = {
        {"", 0, ""},
        {"model.w", 7, "model.w"},
        {"a b\"c'", 6, "a b\"c'"},
        {"a\nb\tc\rd", 7, "a\\nb\\tc\\rd"},
        {"\x1b[31m", 5, "\\x1b[31m"},
        {"a\0b", 3, "a\\x00b"},
        {"\x7f", 1, "\\x7f"},
        {"a\\n", 3, "a\\\\n"},
        {"sp\xc3\xa4"
         "ces",
         7,
         "sp\xc3\xa4"
         "ces"},
        {"\xff\xfe", 2, "\\xff\\xfe"},
        {"\xe2\x82", 2, "\\xe2\\x82"},
        {"\xc2\x9b", 2, "\\u009b"},
        {"\xe2\x80\xae", 3, "\\u202e"},
        {"\xed\xa0\x80", 3, "\\xed\\xa0\\x80"},
        {"\xf0\x9f\x98\x80", 4, "\xf0\x9f\x98\x80"},
    };
    char out[TEXT_NAME_CHARS];
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_string_equal(text_escape(cases[i].name, cases[i].length, out), cases[i].shown);
}

TEST(long_names_keep_their_head_and_tail)
{
    char name[4000], out[TEXT_NAME_CHARS];
    memset(name, 'x', sizeof name);
    assert_int_equal(strlen(text_escape(name, 120, out)), 120);
    assert_null(strstr(out, "..."));
    memcpy(name, "model.", 6);
    memcpy(name + 121 - 7, ".weight", 7);
    text_escape(name, 121, out);
    assert_int_equal(strlen(out), 120);
    assert_int_equal(strncmp(out, "model.xxx", 9), 0);
    assert_string_equal(out + strlen(out) - 10, "xxx.weight");
    assert_non_null(strstr(out, "x...x"));
}

TEST(a_cut_never_splits_a_character)
{
    char name[1000], out[TEXT_NAME_CHARS];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(name, 'a', shift);
        for (size_t i = shift; i + 4 <= sizeof name; i += 4)
            memcpy(name + i, "\xf0\x9f\x98\x80", 4);
        text_escape(name, shift + (sizeof name - 4) / 4 * 4 - 4, out);
        assert_true(text_is_utf8(out, strlen(out)));
        assert_null(strstr(out, "\\x"));
    }
    memset(name, 1, sizeof name);
    assert_true(strlen(text_escape(name, sizeof name, out)) < TEXT_NAME_CHARS);
    assert_int_equal(strncmp(out + strlen(out) - 4, "\\x01", 4), 0);
}

TEST(the_nearest_word_is_found_and_far_ones_are_not)
{
    static const char *const keys[] = {"server", "logging", "memory", "sources", "engine"};
    static const char *const longer[] = {"enable_local_batched_disk_load", "enable_owner_file_collective", "cost_gate"};
    char endless[600];
    assert_string_equal(text_nearest("servr", keys, COUNT(keys)), "server");
    assert_string_equal(text_nearest("SERVER", keys, COUNT(keys)), "server");
    assert_string_equal(text_nearest("memroy", keys, COUNT(keys)), "memory");
    assert_string_equal(text_nearest("source", keys, COUNT(keys)), "sources");
    assert_string_equal(text_nearest("enable_local_batch_disk_load", longer, COUNT(longer)), longer[0]);
    assert_string_equal(text_nearest("cost_gates", longer, COUNT(longer)), "cost_gate");
    assert_null(text_nearest("nonsense", keys, COUNT(keys)));
    assert_null(text_nearest("xyz", keys, COUNT(keys)));
    assert_null(text_nearest("server", keys, 0));
    memset(endless, 's', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(text_nearest(endless, keys, COUNT(keys)));
}

/* The same distance, filled in completely and without any shortcut. */
static size_t plain_distance(const char *a, const char *b)
{
    static size_t cell[40][40];
    size_t n_a = strlen(a), n_b = strlen(b);
    for (size_t i = 0; i <= n_a; i++) {
        for (size_t j = 0; j <= n_b; j++) {
            size_t best = i == 0 ? j : j == 0 ? i : cell[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (i && j && cell[i - 1][j] + 1 < best)
                best = cell[i - 1][j] + 1;
            if (i && j && cell[i][j - 1] + 1 < best)
                best = cell[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && cell[i - 2][j - 2] + 1 < best)
                best = cell[i - 2][j - 2] + 1;
            cell[i][j] = best;
        }
    }
    return cell[n_a][n_b];
}

TEST(the_nearest_word_is_the_one_a_plain_computation_finds)
{
    char words[30][24], word[24];
    const char *candidates[30];
    uint64_t seed = 7;
    for (int round = 0; round < 3000; round++) {
        for (int i = 0; i <= 30; i++) {
            char *out = i < 30 ? words[i] : word;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t length = 1 + (seed >> 33) % 20;
            for (size_t j = 0; j < length; j++, seed = seed * 6364136223846793005u + 1442695040888963407u)
                out[j] = "abc"[(seed >> 40) % 3];
            out[length] = '\0';
            candidates[i % 30] = words[i % 30];
        }
        const char *expected = NULL;
        size_t best = strlen(word) / 3 + 2;
        for (int i = 0; i < 30; i++) {
            if (plain_distance(word, words[i]) < best) {
                best = plain_distance(word, words[i]);
                expected = words[i];
            }
        }
        assert_ptr_equal(text_nearest(word, candidates, 30), expected);
    }
}

TEST(of_equally_near_words_the_first_wins)
{
    static const char *const words[] = {"aXc", "aYc"};
    assert_string_equal(text_nearest("aZc", words, 2), "aXc");
    assert_string_equal(text_nearest("aYc", words, 2), "aYc");
}

TEST(utf8_is_what_rfc_3629_says)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc2",
                                      "\xc2\x41",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff",
                                      "a\xe2\x82"};
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(text_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(text_is_utf8(bad[i], strlen(bad[i])));
    assert_true(text_is_utf8("a\0b", 3));
}

TEST(globs_match_as_a_shell_does)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "a/b.c", true},
        {"a", "a", true},
        {"a", "ab", false},
        {"ab", "a", false},
        {"*.weight", "model.0.weight", true},
        {"*.weight", "weight", false},
        {"*q_proj*", "a.q_proj.bias", true},
        {"?", "", false},
        {"?", "a", true},
        {"a?c", "abc", true},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXbYbZ", false},
        {"**", "x", true},
        {"layers.[0-9].w", "layers.7.w", true},
        {"layers.[0-9].w", "layers.x.w", false},
        {"[!0-9]", "x", true},
        {"[^0-9]", "3", false},
        {"[]]", "]", true},
        {"[a-]", "-", true},
        {"[]a]x", "ax", true},
        {"[abc", "[abc", true},
        {"[abc", "a", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\", "\\", true},
        {"*.*", ".x", true},
        {"a*", "b", false},
        {"*[ab]", "xxb", true},
        {"*[ab]", "xxc", false},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (text_glob(cases[i].pattern, cases[i].name, strlen(cases[i].name)) != cases[i].matches)
            fail_msg("glob '%s' against '%s'", cases[i].pattern, cases[i].name);
    }
}

TEST(a_glob_looks_at_no_byte_after_the_name_and_takes_nuls)
{
    assert_true(text_glob("a*", "ab", 1));
    assert_false(text_glob("ab", "ab", 1));
    assert_true(text_glob("a?b", "a\0b", 3));
}

TEST(a_hostile_glob_ends)
{
    char name[5000];
    memset(name, 'a', sizeof name);
    assert_false(text_glob("*a*a*a*a*a*a*a*a*a*a*a*a*b", name, sizeof name));
}

TEST(hexadecimal_digits_are_those_22_and_no_other_byte)
{
    int n_digits = 0;
    for (int c = -128; c < 128; c++)
        n_digits += text_hex_digit((char)c) >= 0;
    assert_int_equal(n_digits, 22);
    assert_int_equal(text_hex_digit('9'), 9);
    assert_int_equal(text_hex_digit('a'), 10);
    assert_int_equal(text_hex_digit('F'), 15);
}

TEST(percents_are_decoded_or_refused)
{
    static const char *const right[][2] = {{"", ""}, {"a%2Fb%25+", "a/b%+"}, {"%c3%A4", "\xc3\xa4"}, {"%41%42", "AB"}};
    static const char *const wrong[] = {"%", "a%4", "%4g", "%g4", "%00", "a%%41"};
    char text[32];
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        strcpy(text, right[i][0]);
        assert_true(text_percent_decode(text));
        assert_string_equal(text, right[i][1]);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(text_percent_decode(strcpy(text, wrong[i])));
}

TEST(an_ending_may_be_all_there_is)
{
    static const char *const words[] = {"ab", "cd"};
    assert_true(text_ends_with("a.json", 6, ".json") && text_ends_with(".json", 5, ".json"));
    assert_false(text_ends_with("json", 4, ".json") || text_ends_with("a.jsonx", 7, ".json"));
    assert_true(text_ends_with("a.jsonx", 6, ".json")); /* as long as is said */
    assert_true(text_is_one_of("cd", words, 2));
    assert_false(text_is_one_of("c", words, 2) || text_is_one_of("cd", words, 1));
}

TEST(a_plain_path_or_name_leads_nowhere_else)
{
    static const char *const bad[] = {"", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b"};
    assert_true(text_is_plain_path("a/b.c/...") && text_is_plain_path(".a"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(text_is_plain_path(bad[i]));
    assert_true(text_is_plain_name("a b.json", 8));
    assert_false(text_is_plain_name("", 0) || text_is_plain_name(".a", 2) || text_is_plain_name("a/b", 3) ||
                 text_is_plain_name("a\\b", 3) || text_is_plain_name("a\n", 2) || text_is_plain_name("a\x7f", 2) ||
                 text_is_plain_name("a\xff", 2));
}

TEST(shapes_are_lists_and_long_ones_are_cut)
{
    uint64_t shape[64] = {4096, 0};
    const char *text = NULL;
    assert_string_equal(text_show_shape(NULL, 0), "[]");
    assert_string_equal(text_show_shape(shape, 2), "[4096, 0]");
    for (size_t d = 0; d < 64; d++)
        shape[d] = UINT64_MAX;
    for (size_t rank = 1; rank <= 64; rank++) {
        text = text_show_shape(shape, rank);
        assert_true(strlen(text) < TEXT_NAME_CHARS);
        assert_int_equal(text[strlen(text) - 1], ']');
    }
    assert_non_null(strstr(text, ", ...]"));
}

TEST(sizes_and_rates_are_shown_as_they_are_printed)
{
    assert_string_equal(text_show_amount(812), "812 B");
    assert_string_equal(text_show_rate(2.0 * (1 << 30)), "2.00 GiB/s");
}
