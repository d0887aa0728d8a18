/* View files: order kept, NumPy bounds, and everything that is not exactly a view refused. */
#include "tests/support/unit.h"

#include "client/cli/view_text.h"

static struct arena arena;
static struct error error;

static int tear_down(void **state)
{
    arena_fini(&arena);
    return 0;
}

static struct view_file parse(const char *text)
{
    struct view_file file;
    if (view_file_parse(text, strlen(text), &arena, &file, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return file;
}

static void assert_refused(const char *text, const char *word)
{
    struct view_file file;
    memset(&error, 0, sizeof error);
    if (view_file_parse(text, strlen(text), &arena, &file, &error) == 0)
        fail_msg("accepted: %s", text);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' does not mention '%s'", error.message, word);
}

TEST_IN(order_names_and_bounds_are_kept, NULL, tear_down)
{
    struct view_file file =
        parse("{\"tensors\": [{\"name\": \"b\", \"slices\": [null, [0, 3584]]}, {\"slices\": [[-4, null], "
              "[null, -1]], \"name\": \"a\"}, {\"name\": \"c\"}]}");
    assert_int_equal(file.view.n_items, 3);
    assert_int_equal(file.view.align_bytes, 0);
    assert_string_equal(file.view.items[0].name, "b");
    assert_int_equal(file.view.items[0].n_slices, 2);
    assert_int_equal(file.view.items[0].slices[0].start, 0);
    assert_true(file.view.items[0].slices[0].stop == TC_OPEN_END);
    assert_int_equal(file.view.items[0].slices[1].stop, 3584);
    assert_string_equal(file.view.items[1].name, "a");
    assert_int_equal(file.view.items[1].slices[0].start, -4);
    assert_true(file.view.items[1].slices[0].stop == TC_OPEN_END);
    assert_int_equal(file.view.items[1].slices[1].stop, -1);
    assert_string_equal(file.view.items[2].name, "c");
    assert_int_equal(file.view.items[2].n_slices, 0);
    assert_null(file.view.items[2].slices);
    assert_false(file.has_empty_slices);
}

TEST_IN(bounds_beyond_64_bits_clip_like_any_other, NULL, tear_down)
{
    struct view_file file = parse("{\"tensors\":[{\"name\":\"w\",\"slices\":[[-9223372036854775808,9223372036854775807],"
                                  "[-99999999999999999999,99999999999999999999]]}]}");
    for (size_t d = 0; d < 2; d++) {
        assert_true(file.view.items[0].slices[d].start == INT64_MIN);
        assert_true(file.view.items[0].slices[d].stop == INT64_MAX);
    }
}

TEST_IN(an_empty_list_of_slices_is_told_apart_from_none, NULL, tear_down)
{
    struct view_file file = parse("{\"tensors\":[{\"name\":\"s\",\"slices\":[]},{\"name\":\"w\"}]}");
    assert_true(file.has_empty_slices);
    assert_int_equal(file.view.items[0].n_slices, 0);
    assert_non_null(file.view.items[0].slices);
    assert_null(file.view.items[1].slices);
}

TEST_IN(alignment_is_a_power_of_two_up_to_two_mebibytes, NULL, tear_down)
{
    assert_int_equal(parse("{\"align\": 1, \"tensors\": [{\"name\": \"w\"}]}").view.align_bytes, 1);
    assert_int_equal(parse("{\"tensors\": [{\"name\": \"w\"}], \"align\": 2097152}").view.align_bytes, 2 << 20);
    assert_refused("{\"align\": 4194304, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": 0, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": 3, \"tensors\": [{\"name\": \"w\"}]}", "align");
    assert_refused("{\"align\": -64, \"tensors\": [{\"name\": \"w\"}]}", "byte");
    assert_refused("{\"align\": null, \"tensors\": [{\"name\": \"w\"}]}", "byte");
}

TEST_IN(placement_is_one_of_two_words, NULL, tear_down)
{
    assert_false(parse("{\"tensors\": [{\"name\": \"w\"}]}").has_placement);
    struct view_file file = parse("{\"placement\": \"packed\", \"tensors\": [{\"name\": \"w\"}]}");
    assert_true(file.has_placement && file.placement == TC_PLACEMENT_PACKED);
    file = parse("{\"tensors\": [{\"name\": \"w\"}], \"placement\": \"source\"}");
    assert_true(file.has_placement && file.placement == TC_PLACEMENT_SOURCE);
    assert_refused("{\"placement\": \"Packed\", \"tensors\": [{\"name\": \"w\"}]}", "placement");
    assert_refused("{\"placement\": 1, \"tensors\": [{\"name\": \"w\"}]}", "byte");
    assert_refused("{\"placement\": \"packed\", \"placement\": \"packed\", \"tensors\": [{\"name\": \"w\"}]}", "twice");
}

TEST_IN(a_text_that_is_no_view_is_refused, NULL, tear_down)
{
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "[]",
                                        "null",
                                        "{}",
                                        "{\"tensors\": {}}",
                                        "{\"tensors\": null}",
                                        "{\"tensors\": [",
                                        "{\"tensors\": [{\"name\": \"w\"}",
                                        "{\"tensors\": [\"w\"]}",
                                        "{\"tensors\": [{\"name\": \"w\"},]}",
                                        "{\"tensors\": [{\"name\": \"w\"}]} x",
                                        "{\"tensors\": [{\"name\": \"w\"}]}{}",
                                        "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused(texts[i], "");
}

TEST_IN(no_tensors_at_all_are_refused, NULL, tear_down)
{
    assert_refused("{\"tensors\": []}", "empty");
    assert_refused("{\"align\": 64}", "without \"tensors\"");
}

TEST_IN(an_item_that_is_wrong_is_named, NULL, tear_down)
{
    static const char *const slices[] = {"{}",         "0",        "\"0:1\"",     "[0]",       "[[0]]",
                                         "[[0,1,2]]",  "[[0,1],]", "[[\"0\",1]]", "[[0.5,1]]", "[[1e3,2]]",
                                         "[[true,2]]", "[true]",   "[[]]",        "[[0 1]]"};
    char text[200];
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        snprintf(text, sizeof text, "{\"tensors\": [{\"name\": \"first\"}, {\"name\": \"w\", \"slices\": %s}]}", slices[i]);
        assert_refused(text, "'w'");
    }
    assert_refused("{\"tensors\": [{\"name\": \"w\"}, {\"name\": 7}]}", "number 2");
    assert_refused("{\"tensors\": [{}]}", "without \"name\"");
    assert_refused("{\"tensors\": [{\"name\": null}]}", "number 1");
}

TEST_IN(unknown_and_repeated_keys_are_refused, NULL, tear_down)
{
    assert_refused("{\"tensors\": [{\"name\": \"w\"}], \"Align\": 64}", "unknown key");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"slice\": null}]}", "unknown key");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"name\": \"v\"}]}", "twice");
    assert_refused("{\"tensors\": [{\"name\": \"w\"}], \"tensors\": [{\"name\": \"v\"}]}", "twice");
    assert_refused("{\"tensors\": [{\"name\": \"w\", \"slices\": [null], \"slices\": [null]}]}", "twice");
    assert_refused("{\"align\": 1, \"align\": 1, \"tensors\": [{\"name\": \"w\"}]}", "twice");
}

TEST_IN(names_are_any_text_but_without_nul, NULL, tear_down)
{
    assert_string_equal(parse("{\"tensors\":[{\"name\":\"\\u00e9\\n*\"}]}").view.items[0].name, "\xc3\xa9\n*");
    assert_string_equal(parse("{\"tensors\":[{\"name\":\"\"}]}").view.items[0].name, "");
    assert_refused("{\"tensors\":[{\"name\":\"a\\u0000b\"}]}", "NUL");
    assert_refused("{\"tensors\":[{\"name\":\"\xff\"}]}", "UTF-8");
}

TEST_IN(sixty_four_slices_are_taken_and_one_more_is_not, NULL, tear_down)
{
    char text[600] = "{\"tensors\":[{\"name\":\"w\",\"slices\":[null";
    for (int i = 1; i < 64; i++)
        strcat(text, ",null");
    char *end = text + strlen(text);
    strcpy(end, "]}]}");
    assert_int_equal(parse(text).view.items[0].n_slices, 64);
    strcpy(end, ",null]}]}");
    assert_refused(text, "64");
}

TEST_IN(a_hundred_thousand_tensors_are_all_there, NULL, tear_down)
{
    enum { N = 100000 };
    char *text = malloc(100 * N), *at = text;
    struct view_file file;
    at += sprintf(at, "{\"tensors\":[");
    for (int i = 0; i < N; i++)
        at +=
            sprintf(at, "%s{\"name\":\"model.experts.%d.w\",\"slices\":[[0,%d],[-2,null],null,[1,2]]}", i ? "," : "", i, i);
    at += sprintf(at, "]}");
    assert_int_equal(view_file_parse(text, (size_t)(at - text), &arena, &file, &error), 0);
    free(text);
    assert_int_equal(file.view.n_items, N);
    assert_string_equal(file.view.items[N - 1].name, "model.experts.99999.w");
    assert_int_equal(file.view.items[N - 1].slices[0].stop, N - 1);
    assert_int_equal(file.view.items[1].n_slices, 4);
}

/* --- slice text --- */

static struct arena arena;
static struct error error;

static int tear_down_of_slice(void **state)
{
    arena_fini(&arena);
    return 0;
}

static struct slice_text parse_of_slice(const char *text)
{
    struct slice_text slice;
    memset(&error, 0, sizeof error);
    if (slice_text_parse(text, &arena, &slice, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return slice;
}

static void assert_refused_of_slice(const char *text, const char *word)
{
    struct slice_text slice;
    memset(&error, 0, sizeof error);
    assert_int_equal(slice_text_parse(text, &arena, &slice, &error), -1);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    if (!strstr(error.message, word))
        fail_msg("'%s' does not mention '%s'", error.message, word);
}

static void assert_slice(const struct slice_text *slice, size_t dimension, int64_t start, int64_t stop)
{
    assert_true(dimension < slice->n_slices);
    assert_int_equal(slice->slices[dimension].start, start);
    assert_int_equal(slice->slices[dimension].stop, stop);
}

TEST_IN(bounds_may_be_negative_or_missing, NULL, tear_down_of_slice)
{
    struct slice_text slice = parse_of_slice("a.b[2:5, :, -3:, :-1]");
    assert_string_equal(slice.name, "a.b");
    assert_int_equal(slice.n_slices, 4);
    assert_slice(&slice, 0, 2, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
    assert_slice(&slice, 2, -3, TC_OPEN_END);
    assert_slice(&slice, 3, 0, -1);
}

TEST_IN(blanks_are_ignored_inside_the_brackets, NULL, tear_down_of_slice)
{
    struct slice_text slice = parse_of_slice("w[  2 : 5 ,\t:  ]");
    assert_int_equal(slice.n_slices, 2);
    assert_slice(&slice, 0, 2, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
}

TEST_IN(the_name_may_hold_anything_even_brackets_and_blanks, NULL, tear_down_of_slice)
{
    assert_string_equal(parse_of_slice("layers[3].w x[1:2]").name, "layers[3].w x");
    assert_string_equal(parse_of_slice("\xc3\xa9 \n[:]").name, "\xc3\xa9 \n");
}

TEST_IN(an_explicit_step_of_one_means_nothing, NULL, tear_down_of_slice)
{
    struct slice_text slice = parse_of_slice("w[1:5:1, ::1, ::]");
    assert_slice(&slice, 0, 1, 5);
    assert_slice(&slice, 1, 0, TC_OPEN_END);
    assert_slice(&slice, 2, 0, TC_OPEN_END);
}

TEST_IN(any_other_step_is_refused_and_the_tensor_named, NULL, tear_down_of_slice)
{
    assert_refused_of_slice("w[::2, :]", "'w'");
    assert_refused_of_slice("w[::-1]", "step");
    assert_refused_of_slice("w[0:9:0]", "step");
}

TEST_IN(bounds_beyond_64_bits_saturate_and_so_clip_as_in_numpy, NULL, tear_down_of_slice)
{
    struct slice_text slice = parse_of_slice("w[-99999999999999999999:99999999999999999999, 9223372036854775807:]");
    assert_slice(&slice, 0, -INT64_MAX, TC_OPEN_END);
    assert_slice(&slice, 1, INT64_MAX, TC_OPEN_END);
}

TEST_IN(a_single_index_is_refused_because_it_would_drop_a_dimension, NULL, tear_down_of_slice)
{
    assert_refused_of_slice("w[3]", "drop a dimension");
    assert_refused_of_slice("w[:, -1]", "drop a dimension");
}

TEST_IN(what_is_no_slice_is_refused, NULL, tear_down_of_slice)
{
    static const char *const texts[] = {"w",       "w[]",     "w[1:2",  "w]",     "w[1:2]x", "w[1:2],",
                                        "w[,]",    "w[:,]",   "w[a:b]", "w[...]", "w[1 2:]", "w[1:2:]]",
                                        "w[--1:]", "w[1.5:]", "w[-:]",  "w[:;:]", ""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_refused_of_slice(texts[i], "slice of '");
    assert_refused_of_slice("[1:2]", "no tensor is named");
}

TEST_IN(sixty_four_dimensions_are_taken_and_one_more_is_not, NULL, tear_down_of_slice)
{
    char text[300] = "w[:";
    for (int i = 1; i < 64; i++)
        strcat(text, ",:");
    char *end = text + strlen(text);
    strcpy(end, "]");
    assert_int_equal(parse_of_slice(text).n_slices, 64);
    strcpy(end, ",:]");
    assert_refused_of_slice(text, "64");
}

TEST_IN(control_characters_of_the_name_do_not_reach_the_message, NULL, tear_down_of_slice)
{
    assert_refused_of_slice("w\x1b[2J[1]", "\\x1b");
    assert_null(strchr(error.message, '\x1b'));
}

/* --- tp rules --- */

enum { WHOLE = -1, REFUSED = -2 };

static struct arena arena;
static struct error error;

static int tear_down_of_tp(void **state)
{
    arena_fini(&arena);
    return 0;
}

static struct catalog_tensor tensor(const char *name, size_t rank, const uint64_t *shape)
{
    return (struct catalog_tensor){.name = name, .name_length = strlen(name), .dtype = "BF16", .shape = shape, .rank = rank};
}

static bool find_nothing(const void *data, const char *name, size_t length, struct tp_tensor *found)
{
    return false;
}

static int apply(const struct tp_split *split, const struct catalog_tensor *it, const struct tc_slice **slices)
{
    static const struct tp_model model;
    const struct tp_group group = {&model, (uint64_t)split->size, (uint64_t)split->rank, find_nothing, NULL};
    return tp_rules_apply(split, &group, it, &arena, slices, &error);
}

/* Applies the split; returns the one dimension that was cut, WHOLE or REFUSED. */
static int cut(const struct tp_split *split, const struct catalog_tensor *tensor, struct tc_slice *part)
{
    const struct tc_slice *slices;
    int dimension = WHOLE;
    if (apply(split, tensor, &slices) < 0)
        return REFUSED;
    for (size_t d = 0; slices && d < tensor->rank; d++) {
        if (slices[d].start == 0 && slices[d].stop == TC_OPEN_END)
            continue;
        assert_int_equal(dimension, WHOLE);
        dimension = (int)d;
        *part = slices[d];
    }
    return dimension;
}

TEST_IN(the_usual_names_are_split_as_vllm_splits_them, NULL, tear_down_of_tp)
{
    static const struct {
        const char *name;
        size_t rank;
        int dimension;
    } cases[] = {
        {"model.layers.0.self_attn.q_proj.weight", 2, 0},
        {"model.layers.0.self_attn.k_proj.weight", 2, 0},
        {"model.layers.0.self_attn.v_proj.weight", 2, 0},
        {"model.layers.0.self_attn.q_proj.bias", 1, 0},
        {"model.layers.0.self_attn.o_proj.weight", 2, 1},
        {"model.layers.0.self_attn.o_proj.bias", 1, WHOLE},
        {"model.layers.0.self_attn.q_norm.weight", 1, WHOLE},
        {"model.layers.0.mlp.gate_proj.weight", 2, 0},
        {"model.layers.0.mlp.up_proj.bias", 1, 0},
        {"model.layers.0.mlp.down_proj.weight", 2, 1},
        {"model.layers.0.mlp.down_proj.bias", 1, WHOLE},
        {"model.layers.0.mlp.down_proj.weight_scale_inv", 2, 1},
        {"model.layers.0.mlp.gate.weight", 2, WHOLE},
        {"model.layers.0.block_sparse_moe.experts.7.w2.weight", 2, 1},
        {"model.layers.0.block_sparse_moe.experts.7.w3.weight", 2, 0},
        {"model.layers.0.input_layernorm.weight", 1, WHOLE},
        {"model.embed_tokens.weight", 2, 0},
        {"lm_head.weight", 2, 0},
        {"lm_head.bias", 1, 0},
        {"model.norm.weight", 1, WHOLE},
        {"my_q_proj.weight", 2, WHOLE},
        {"q_proj", 2, WHOLE},
        {"q_proj.weight.extra", 2, WHOLE},
        {"a.o_proj.weight", 1, WHOLE}, /* shares the name, has no dimension 1 */
        {"a.q_proj.weight", 0, WHOLE},
    };
    static const uint64_t shape[] = {8, 12};
    const struct tp_split split = {.size = 4, .rank = 3};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct catalog_tensor it = tensor(cases[i].name, cases[i].rank, shape);
        struct tc_slice part;
        int dimension = cut(&split, &it, &part);
        if (dimension != cases[i].dimension)
            fail_msg("%s is cut on %d", cases[i].name, dimension);
        if (dimension >= 0) {
            assert_int_equal(part.start, 3 * shape[dimension] / 4);
            assert_int_equal(part.stop, shape[dimension]);
        }
    }
}

TEST_IN(every_rank_gets_its_own_share, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {6};
    struct catalog_tensor it = tensor("q_proj.bias", 1, shape);
    for (int64_t rank = 0; rank < 3; rank++) {
        struct tc_slice part;
        assert_int_equal(cut(&(struct tp_split){.size = 3, .rank = rank}, &it, &part), 0);
        assert_int_equal(part.start, 2 * rank);
        assert_int_equal(part.stop, 2 * rank + 2);
    }
}

TEST_IN(a_group_of_one_takes_everything_whole, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {7, 7};
    struct catalog_tensor it = tensor("q_proj.weight", 2, shape);
    struct tc_slice part;
    assert_int_equal(cut(&(struct tp_split){.size = 1}, &it, &part), WHOLE);
}

TEST_IN(the_first_rule_that_matches_decides, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {4, 6};
    struct tp_rule rules[3];
    struct tc_slice part;
    assert_int_equal(tp_rule_parse("a.x=replicate", &arena, &rules[0], &error), 0);
    assert_int_equal(tp_rule_parse("a.*=1", &arena, &rules[1], &error), 0);
    assert_int_equal(tp_rule_parse("?.x=-2", &arena, &rules[2], &error), 0);
    const struct tp_split split = {.size = 2, .rank = 1, .rules = rules, .n_rules = 3};
    struct catalog_tensor ax = tensor("a.x", 2, shape), ay = tensor("a.y", 2, shape), bx = tensor("b.x", 2, shape);
    struct catalog_tensor q = tensor("q_proj.weight", 2, shape);
    assert_int_equal(cut(&split, &ax, &part), WHOLE);
    assert_int_equal(cut(&split, &ay, &part), 1);
    assert_int_equal(part.start, 3);
    assert_int_equal(cut(&split, &bx, &part), 0);    /* -2 of two dimensions */
    assert_int_equal(cut(&split, &q, &part), WHOLE); /* the usual names count only without rules */
}

TEST_IN(a_rule_may_name_any_dimension, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {2, 3, 4, 6};
    struct tp_rule rule;
    struct tc_slice part;
    struct catalog_tensor it = tensor("experts.up_proj.weight", 4, shape);
    static const struct {
        const char *text;
        int64_t size;
        int dimension;
    } cases[] = {{"*=0", 2, 0}, {"*=1", 3, 1}, {"*=-2", 4, 2}, {"*=-1", 3, 3}, {"*=-4", 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tp_rule_parse(cases[i].text, &arena, &rule, &error), 0);
        const struct tp_split split = {.size = cases[i].size, .rank = 1, .rules = &rule, .n_rules = 1};
        assert_int_equal(cut(&split, &it, &part), cases[i].dimension);
        assert_int_equal(part.start, (int64_t)shape[cases[i].dimension] / cases[i].size);
    }
}

TEST_IN(a_dimension_that_does_not_divide_is_refused_and_everything_named, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {7, 6};
    struct catalog_tensor it = tensor("k_proj.weight", 2, shape);
    struct tc_slice part;
    assert_int_equal(cut(&(struct tp_split){.size = 2}, &it, &part), REFUSED);
    assert_int_equal(error.code, ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "k_proj.weight"));
    assert_non_null(strstr(error.message, "(7)"));
    assert_non_null(strstr(error.message, "2 ranks"));
    assert_non_null(strstr(error.message, "'k_proj.weight=replicate'"));
}

TEST_IN(a_rule_for_a_dimension_that_is_not_there_is_refused, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {4, 4};
    struct tp_rule rule;
    struct tc_slice part;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tp_rule_parse(i ? "*=-3" : "*=2", &arena, &rule, &error), 0);
        struct catalog_tensor it = tensor("w", 2, shape);
        assert_int_equal(cut(&(struct tp_split){.size = 2, .rules = &rule, .n_rules = 1}, &it, &part), REFUSED);
        assert_non_null(strstr(error.message, "'w'"));
    }
}

TEST_IN(an_empty_dimension_divides_by_any_number, NULL, tear_down_of_tp)
{
    static const uint64_t shape[] = {0, 5}, huge[] = {UINT64_MAX - 1, 0};
    struct catalog_tensor empty = tensor("q_proj.weight", 2, shape), unaddressable = tensor("q_proj.weight", 2, huge);
    const struct tc_slice *slices;
    assert_int_equal(apply(&(struct tp_split){.size = 8, .rank = 7}, &empty, &slices), 0);
    assert_int_equal(slices[0].start, 0);
    assert_int_equal(slices[0].stop, 0);
    assert_int_equal(apply(&(struct tp_split){.size = 2, .rank = 1}, &unaddressable, &slices), 0);
    assert_null(slices);
}

TEST_IN(a_rule_is_a_glob_an_equals_sign_and_a_dimension, NULL, tear_down_of_tp)
{
    static const char *const bad[] = {"",
                                      "w",
                                      "=0",
                                      "w=",
                                      "w=x",
                                      "w=1.0",
                                      "w=64",
                                      "w=-65",
                                      "w= 1",
                                      "w=--1",
                                      "w=+1",
                                      "w=1x",
                                      "w=99999999999999999999",
                                      "w=Replicate"};
    struct tp_rule rule;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (tp_rule_parse(bad[i], &arena, &rule, &error) == 0)
            fail_msg("accepted: %s", bad[i]);
    }
    assert_int_equal(tp_rule_parse("a=b=63", &arena, &rule, &error), 0);
    assert_string_equal(rule.glob, "a=b");
    assert_int_equal(rule.dimension, 63);
    assert_int_equal(tp_rule_parse("w=-64", &arena, &rule, &error), 0);
    assert_int_equal(rule.dimension, -64);
}
