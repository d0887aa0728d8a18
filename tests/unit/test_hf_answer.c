/* The hub's answers: commits, pages of a tree, links to the next one. */
#include "tests/support/unit.h"

#include "source/hf/hf_answer.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int commit_of(const char *json, char commit[HF_COMMIT_CHARS + 1])
{
    struct error error;
    return hf_answer_commit(json, strlen(json), commit, &error);
}

TEST(a_commit_is_forty_digits)
{
    static const char *const none[] = {"{}",
                                       "[]",
                                       "",
                                       "{\"sha\":1}",
                                       "{\"sha\":\"abc\"}",
                                       "{\"sha\":\"" COMMIT "\"} x",
                                       "{\"sha\":\"0123456789ABCDEF0123456789abcdef01234567\"}",
                                       "{\"sha\":\"0123456789abcdef\\u0000123456789abcdef0123456\"}"};
    char commit[HF_COMMIT_CHARS + 1];
    assert_int_equal(commit_of("{\"id\":[{}],\"sha\":\"" COMMIT "\"}", commit), 0);
    assert_string_equal(commit, COMMIT);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(commit_of(none[i], commit), -1);
        assert_string_equal(commit, "");
    }
}

static int note(void *data, const struct hf_entry *entry, struct error *error)
{
    char *text = data;
    (void)error;
    sprintf(text + strlen(text), "%.*s %llu %.4s %d;", (int)entry->path.length, entry->path.text,
            (unsigned long long)entry->size_bytes, entry->pin.text ? entry->pin.text : "none", entry->checksum.kind);
    return 0;
}

TEST(a_page_gives_its_files_and_no_folders)
{
    static const char page[] =
        "[{\"type\":\"directory\",\"path\":\"d\"},{\"type\":\"file\",\"path\":\"a\",\"size\":7,\"oid\":\"beef\","
        "\"lfs\":{\"oid\":\"" SHA256 "\"}},{\"type\":\"file\",\"path\":\"b\",\"size\":0,\"lfs\":null,\"oid\":\"cafe\"}]";
    char seen[200] = "", expected[100];
    struct error error;
    assert_int_equal(hf_answer_page(page, strlen(page), note, seen, &error), 0);
    sprintf(expected, "a 7 0123 %d;b 0 cafe %d;", CHECKSUM_SHA256, CHECKSUM_NONE);
    assert_string_equal(seen, expected);
}

TEST(a_page_that_makes_no_sense_is_no_page)
{
    static const char *const bad[] = {"{}",
                                      "[1]",
                                      "[{}]",
                                      "[{\"type\":\"file\",\"size\":1}]",
                                      "[{\"type\":\"file\",\"path\":\"a\"}]",
                                      "[{\"type\":\"file\",\"path\":\"a\",\"size\":-1}]",
                                      "[{\"path\":\"a\",\"size\":1}]",
                                      "[{\"type\":\"file\",\"path\":\"a\",\"size\":1,\"lfs\":{\"oid\":\"beef\"}}]",
                                      "[",
                                      "[]]"};
    char seen[200] = "";
    struct error error;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hf_answer_page(bad[i], strlen(bad[i]), note, seen, &error), -1);
        assert_string_equal(error.reason, "BAD_ANSWER");
    }
}

TEST(the_next_page_is_the_link_that_says_next)
{
    static const char *const cases[][2] = {
        {"<https://h/a?b=1>; rel=\"next\"", "https://h/a?b=1"},
        {"<a>; rel=prev, <b>;rel=next", "b"},
        {"<a>; rel=\"prev\"", NULL},
        {"<a; rel=next", NULL},
        {"", NULL},
        {"next", NULL},
    };
    const struct http_head none = {0};
    assert_null(hf_answer_next_page(&none));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct http_header header = {"link", cases[i][0]};
        char *next = hf_answer_next_page(&(struct http_head){200, &header, 1});
        if (cases[i][1])
            assert_string_equal(next, cases[i][1]);
        else
            assert_null(next);
        free(next);
    }
}
