/* The tables of reasons in docs/planning.md are the rows of daemon/plan/reason.h. UPDATE=1 build/tests/golden/test_plan_docs
 * writes them anew. */
#include "tests/support/unit.h"

#include "plan/reason.h"

#define PATH "docs/planning.md"
static const char MARK[] = "<!-- from daemon/plan/reason.h: make docs -->\n";

static char *read_document(void)
{
    FILE *file = fopen(PATH, "r");
    if (!file)
        fail_msg("%s cannot be opened; run from the project's root", PATH);
    char *text = calloc(1, 1 << 20);
    assert_in_range(fread(text, 1, (1 << 20) - 1, file), 1, (1 << 20) - 2);
    fclose(file);
    return text;
}

static void print_selection(FILE *out)
{
    fputs("|`selection_reason`|what to do about it|\n|---|---|\n", out);
    for (size_t i = 0; i < REASON_COUNT; i++)
        if (!reason_rows[i].of)
            fprintf(out, "|`%s%s`|%s|\n", reason_rows[i].name, reason_rows[i].shape, reason_rows[i].advice);
}

static void print_candidates(FILE *out)
{
    fputs("|reason|of|means, and what to do|\n|---|---|---|\n", out);
    for (size_t i = 0; i < REASON_COUNT; i++)
        if (reason_rows[i].of)
            fprintf(out, "|`%s%s`|%s|%s|\n", reason_rows[i].name, reason_rows[i].shape, reason_rows[i].of,
                    reason_rows[i].advice);
}

/* The document with what stands behind each mark, up to an empty line, replaced by its table. */
static void print_document(const char *text, FILE *out)
{
    void (*const print[])(FILE * out) = {print_selection, print_candidates};
    for (size_t i = 0; i < 2; i++) {
        const char *mark = strstr(text, MARK);
        assert_non_null(mark);
        fwrite(text, 1, (size_t)(mark - text) + strlen(MARK), out);
        print[i](out);
        text = strstr(mark, "\n\n");
        assert_non_null(text);
        text++;
    }
    fputs(text, out);
}

TEST(the_document_lists_every_reason)
{
    char *found = read_document(), *expected = NULL;
    size_t length;
    FILE *out = open_memstream(&expected, &length);
    print_document(found, out);
    fclose(out);
    if (getenv("UPDATE") && strcmp(found, expected) != 0) {
        FILE *file = fopen(PATH, "w");
        assert_non_null(file);
        fputs(expected, file);
        fclose(file);
    } else if (strcmp(found, expected) != 0) {
        fail_msg("%s does not match daemon/plan/reason.c; run make docs and read the change", PATH);
    }
    free(expected);
    free(found);
}
