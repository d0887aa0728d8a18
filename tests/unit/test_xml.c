/* The XML reader takes what S3 and STS write and refuses everything that is not well formed or wants to expand. */
#include "tests/support/unit.h"

#include "source/s3/xml.h"

struct found {
    char *text;
    int n_elements;
};

static bool take_a(void *data, const char *path, const char *text)
{
    struct found *found = data;
    found->n_elements++;
    if (!found->text && strcmp(path, "r/a") == 0 && text)
        found->text = strdup(text);
    return strcmp(path, "r/a") != 0 || text;
}

/* The text of <a>, child of <r>, or NULL when the document is refused. Every byte behind it is out of bounds. */
static char *text_of_a(const char *document)
{
    struct found found = {0};
    char *copy = malloc(strlen(document) + !*document);
    memcpy(copy, document, strlen(document));
    const char *wrong = xml_read(copy, strlen(document), take_a, &found);
    free(copy);
    if (!wrong)
        return found.text;
    free(found.text);
    return NULL;
}

TEST(texts_come_out_unescaped)
{
    static const char *const cases[][2] = {
        {"<r><a>x</a></r>", "x"},
        {"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- <x> -->\n<r xmlns=\"http://s3/\">\n <b/><a>x</a>\n</r>\n", "x"},
        {"<r><b q='>'><c><a>no</a></c></b><a y=\"/\">&lt;&gt;&amp;&quot;&apos;&#65;&#x42;&#xe9;&#x20AC;&#x1F600;</a></r>",
         "<>&\"'AB\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"<r><a/></r>", ""},
        {"<r><a></a></r>", ""},
        {"<r><a>1<![CDATA[</a>&amp;]]>2<!-- </a> -->3456789</a></r>", "1</a>&amp;23456789"},
        {"<r><a>1<?p </a> ?>23456789012345</a></r>", "123456789012345"},
        {"<x:r><x:a >v</x:a ></x:r>", "v"},
        {"\xEF\xBB\xBF<r><a> v </a></r>", " v "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = text_of_a(cases[i][0]);
        if (!text || strcmp(text, cases[i][1]) != 0)
            fail_msg("%s: %s", cases[i][0], text ? text : "refused");
        free(text);
    }
}

/* libexpat knows what is well formed; here, what is done about it, and what is refused beside that. */
TEST(what_is_not_well_formed_or_would_expand_is_refused)
{
    static const char *const cases[] = {
        "",
        "   ",
        "x",
        "<r><a>x</a>",
        "<r><a>x</r></a>",
        "<r></r><r></r>",
        "<r><a>x</a></r>x",
        "<r><a><b/>x</a></r>",
        "<r><a>&nbsp;</a></r>",
        "<r><a>&#xD800;</a></r>",
        "<!DOCTYPE r [<!ENTITY e \"x\">]><r><a>&e;</a></r>",
        "<r><!DOCTYPE x><a>x</a></r>",
        "<r><a>x<![CDATA[</a></r>",
        "<r><x:>1</x:></r>",
        "<r><:/></r>",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = text_of_a(cases[i]);
        if (text)
            fail_msg("%s was taken: %s", cases[i], text);
    }
}

/* libexpat tells the end of such a tag after it was told to stop. */
TEST(an_empty_tag_without_a_name_is_no_element)
{
    static const char document[] = "<r><a>x</a><:/><a>y</a></r>";
    struct found found = {0};
    assert_string_equal(xml_read("<:/>", 4, take_a, &found), "a tag has no name");
    assert_int_equal(found.n_elements, 0);
    assert_non_null(xml_read(document, strlen(document), take_a, &found));
    assert_int_equal(found.n_elements, 1);
    free(found.text);
}

static bool is_read(int depth)
{
    char document[400] = "";
    struct found found = {0};
    for (int i = 0; i < depth; i++)
        strcat(document, "<n>");
    for (int i = 0; i < depth; i++)
        strcat(document, "</n>");
    return !xml_read(document, strlen(document), take_a, &found) && found.n_elements == depth;
}

TEST(depth_is_limited)
{
    assert_true(is_read(XML_MAX_DEPTH));
    assert_false(is_read(XML_MAX_DEPTH + 1));
}

TEST(a_nul_is_no_text)
{
    static const char documents[][32] = {"<r><a>x\0y</a></r>", "<r><a><![CDATA[\0]]></a></r>"};
    static const size_t lengths[] = {17, 27};
    for (size_t i = 0; i < 2; i++) {
        struct found found = {0};
        assert_non_null(xml_read(documents[i], lengths[i], take_a, &found));
        assert_null(found.text);
    }
}

TEST(long_documents_come_in_pieces)
{
    enum { LONG = 300 << 10 };
    struct found found = {0};
    char *document = malloc(LONG + 100), *end = document + sprintf(document, "<r><a>");
    memset(end, 'x', LONG);
    strcpy(end + LONG, "</a></r>");
    assert_null(xml_read(document, strlen(document), take_a, &found));
    assert_int_equal(strlen(found.text), LONG);
    free(found.text);
    free(document);
}
