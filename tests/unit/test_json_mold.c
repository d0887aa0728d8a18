/* Values that fit the text of another one are read as the parser reads them, and what does not fit is left alone. */
#include "tests/support/unit.h"

#include "base/json_mold.h"

#define BOX "{\"offsets\": [12, 0], \"shape\": [4, 7], \"file\": 3}"

static struct json_mold mold_of(const char *text, size_t n_numbers)
{
    struct json_mold mold;
    json_mold_set(&mold, text, strlen(text), n_numbers);
    return mold;
}

/* How much of the text was taken; 0 = it does not fit. */
static size_t take(const struct json_mold *mold, const char *text, uint64_t numbers[JSON_MOLD_MAX_NUMBERS])
{
    struct json json;
    json_init(&json, text, strlen(text), NULL);
    bool fits = json_mold_take(mold, &json, numbers);
    assert_true(json_ok(&json));
    assert_true(fits || json.at == json.start);
    return (size_t)(json.at - json.start);
}

TEST(other_numbers_fit_and_nothing_else_does)
{
    static const char *const others[] = {
        "{\"offsets\": [12, 0], \"shape\": [4, 7], \"file\": 3",
        "{\"offsets\": [12,0], \"shape\": [4, 7], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4, -7], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4, 7.0], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4, 7e1], \"file\": 3}",
        "{\"offsets\": [12, 00], \"shape\": [4, 7], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4, ], \"file\": 3}",
        "{\"offsets\": [12, 0], \"shape\": [4, 7], \"fill\": 3}",
        "{\"offsets\": [20000000000000000000, 0], \"shape\": [4, 7], \"file\": 3}",
        "",
    };
    const struct json_mold mold = mold_of(BOX, 5);
    uint64_t numbers[JSON_MOLD_MAX_NUMBERS];
    const char *text = " \n{\"offsets\": [9999999999999999999, 100], \"shape\": [0, 1], \"file\": 77},";
    assert_true(mold.is_set);
    assert_int_equal(mold.n_numbers, 5);
    assert_int_equal(take(&mold, text, numbers), strlen(text) - 1);
    assert_true(numbers[0] == 9999999999999999999u && numbers[1] == 100 && numbers[2] == 0 && numbers[3] == 1);
    assert_int_equal(numbers[4], 77);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(take(&mold, others[i], numbers), 0);
}

TEST(digits_in_strings_are_text)
{
    const struct json_mold mold = mold_of("{\"dtype\":\"F8_E4M3\",\"shape\":[]}", 0);
    uint64_t numbers[JSON_MOLD_MAX_NUMBERS];
    assert_int_equal(mold.n_numbers, 0);
    assert_int_not_equal(take(&mold, "{\"dtype\":\"F8_E4M3\",\"shape\":[]}", numbers), 0);
    assert_int_equal(take(&mold, "{\"dtype\":\"F8_E5M2\",\"shape\":[]}", numbers), 0);
}

TEST(sixteen_numbers_and_400_characters_fit_and_no_more)
{
    char text[1024];
    for (int n = JSON_MOLD_MAX_NUMBERS; n <= JSON_MOLD_MAX_NUMBERS + 1; n++) {
        strcpy(text, "[1");
        for (int i = 1; i < n; i++)
            strcat(text, ",1");
        strcat(text, "]");
        assert_int_equal(mold_of(text, (size_t)n).is_set, n == JSON_MOLD_MAX_NUMBERS);
    }
    for (int n = JSON_MOLD_MAX_CHARS; n <= JSON_MOLD_MAX_CHARS + 1; n++) {
        snprintf(text, sizeof text, "[%*s]", n - 2, "");
        assert_int_equal(mold_of(text, 0).is_set, n == JSON_MOLD_MAX_CHARS);
    }
    assert_false(mold_of("{\"a\\u0062\": 1}", 1).is_set);
    assert_false(mold_of(BOX, 4).is_set); /* or more numbers than were read */
}

/* What is taken is what the parser would have taken: any text at all, most of it near the mold's. */
TEST(whatever_fits_is_what_the_parser_reads)
{
    static const char soup[] = "0123456789 ,[]{}\":.e-+x";
    const struct json_mold mold = mold_of(BOX, 5);
    size_t n_fits = 0;
    srand(1);
    for (int round = 0; round < 200000; round++) {
        char text[] = BOX;
        uint64_t numbers[JSON_MOLD_MAX_NUMBERS], number, at = 0;
        for (int i = rand() % 3; i >= 0; i--)
            text[(size_t)rand() % (sizeof text - 1)] = soup[(size_t)rand() % (sizeof soup - 1)];
        if (!take(&mold, text, numbers))
            continue;
        struct json json;
        struct json_string key;
        n_fits++;
        json_init(&json, text, strlen(text), NULL);
        json_begin_object(&json);
        while (json_next_key(&json, &key)) {
            bool is_list = json_peek(&json) == JSON_ARRAY;
            if (is_list)
                json_begin_array(&json);
            while (is_list ? json_next_item(&json) : true) {
                assert_true(json_take_u64(&json, &number));
                assert_int_equal(number, numbers[at++]);
                if (!is_list)
                    break;
            }
        }
        assert_true(json_end(&json));
        assert_int_equal(at, mold.n_numbers);
    }
    assert_true(n_fits > 1000);
}
