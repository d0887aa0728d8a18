#include "resolve/tp_model.h"

#include <string.h>

#include "base/json.h"

/* Where in the document. */
enum section { SECTION_TOP, SECTION_TEXT, SECTION_VISION, SECTION_AUDIO, SECTION_QUANTIZATION, SECTION_COUNT };

struct told { /* by one section */
    uint64_t query, kv;
    int query_key, kv_key; /* which name said it; the first one counts */
    bool is_list, multi_query, is_falcon, new_decoder;
};

struct reading {
    struct json json;
    struct told told[SECTION_COUNT];
    struct tp_model *model;
};

static const struct {
    const char *key;
    enum section section;
} sections[] = {
    {"text_config", SECTION_TEXT},      {"llm_config", SECTION_TEXT},
    {"language_config", SECTION_TEXT},  {"thinker_config", SECTION_TOP},
    {"attn_config", SECTION_COUNT},     {"vision_config", SECTION_VISION},
    {"vision_encoder", SECTION_VISION}, {"audio_config", SECTION_AUDIO},
    {"audio_encoder", SECTION_AUDIO},   {"quantization_config", SECTION_QUANTIZATION},
};

static const char *const query_keys[] = {"num_attention_heads", "n_head",          "n_heads",
                                         "num_heads",           "num_query_heads", "encoder_attention_heads"};
/* In the order in which vLLM looks for them; MPT and DBRX have the last one in attn_config. */
static const char *const kv_keys[] = {"n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num",
                                      "kv_n_heads"};
enum { N_QUERY_KEYS = sizeof query_keys / sizeof *query_keys, N_KV_KEYS = sizeof kv_keys / sizeof *kv_keys };

static int find_key(const struct json_string *key, const char *const *keys, int n)
{
    for (int i = 0; i < n; i++)
        if (json_string_equals(key, keys[i]))
            return i;
    return -1;
}

/* 0 for what is no whole number. */
static uint64_t take_count(struct json *json)
{
    struct json before = *json;
    uint64_t count = 0;
    if (json_peek(json) == JSON_NUMBER && json_take_u64(json, &count))
        return count;
    *json = before;
    json_skip(json);
    return 0;
}

static bool take_flag(struct json *json)
{
    bool is_true = json_peek(json) == JSON_TRUE;
    json_skip(json);
    return is_true;
}

static void take_block(struct reading *reading)
{
    struct json *json = &reading->json;
    uint64_t block[2] = {0};
    size_t n = 0;
    if (json_peek(json) != JSON_ARRAY) {
        json_skip(json);
        return;
    }
    json_begin_array(json);
    for (; json_next_item(json); n++) {
        uint64_t count = take_count(json);
        if (n < 2)
            block[n] = count;
    }
    if (n == 2 && block[0] && block[1])
        memcpy(reading->model->block, block, sizeof block);
}

static void take_better(uint64_t count, int key, uint64_t *told, int *told_key)
{
    if (!count || (*told && *told_key < key)) /* of a key that occurs twice the last one counts */
        return;
    *told = count;
    *told_key = key;
}

/* A value of `section`; false = it is none that counts, and was not taken. */
static bool take_member(struct reading *reading, enum section section, const struct json_string *key)
{
    struct json *json = &reading->json;
    struct told *told = &reading->told[section];
    int query = find_key(key, query_keys, N_QUERY_KEYS), kv = find_key(key, kv_keys, N_KV_KEYS);
    if (section == SECTION_QUANTIZATION) {
        if (!json_string_equals(key, "weight_block_size"))
            return false;
        take_block(reading);
    } else if (query >= 0 || kv >= 0) {
        told->is_list |= json_peek(json) == JSON_ARRAY;
        uint64_t count = take_count(json);
        if (query >= 0)
            take_better(count, query, &told->query, &told->query_key);
        else
            take_better(count, kv, &told->kv, &told->kv_key);
    } else if (json_string_equals(key, "multi_query")) {
        told->multi_query = take_flag(json);
    } else if (json_string_equals(key, "new_decoder_architecture")) {
        told->new_decoder = take_flag(json);
    } else if (json_string_equals(key, "model_type")) {
        struct json_string type;
        if (json_peek(json) != JSON_STRING)
            json_skip(json);
        else if (json_take_string(json, &type))
            told->is_falcon = json_string_equals(&type, "falcon") || json_string_equals(&type, "RefinedWeb") ||
                              json_string_equals(&type, "RefinedWebModel");
    } else {
        return false;
    }
    return true;
}

static bool find_section(const struct json_string *key, enum section in, enum section *found)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!json_string_equals(key, sections[i].key))
            continue;
        *found = sections[i].section == SECTION_COUNT ? in : sections[i].section;
        return in != SECTION_QUANTIZATION;
    }
    return false;
}

static void read_section(struct reading *reading, enum section section)
{
    struct json *json = &reading->json;
    struct json_string key;
    json_begin_object(json);
    while (json_next_key(json, &key)) {
        enum section nested;
        if (json_peek(json) == JSON_OBJECT && find_section(&key, section, &nested))
            read_section(reading, nested);
        else if (!take_member(reading, section, &key))
            json_skip(json);
    }
}

static struct tp_heads heads_of(const struct told *told)
{
    bool is_one = told->multi_query && !(told->is_falcon && told->new_decoder);
    return (struct tp_heads){told->query, is_one ? 1 : told->kv ? told->kv : told->query, told->is_list};
}

int tp_model_read(const char *json, size_t length, struct tp_model *model, struct error *error)
{
    struct reading reading = {.model = model};
    struct arena arena;
    char text[JSON_ERROR_CHARS];
    int failed = 0;
    *model = (struct tp_model){0};
    if (!json)
        return 0;
    arena_init(&arena, 0);
    json_init(&reading.json, json, length, &arena);
    reading.json.is_lenient = true;
    read_section(&reading, SECTION_TOP);
    if (!json_end(&reading.json))
        failed = fail(error, ERROR_INVALID_ARGUMENT, "BAD_MODEL_CONFIG",
                      "config.json, which says how many heads there are, is broken: %s", json_error(&reading.json, text));
    arena_fini(&arena);
    struct told *of_text = &reading.told[SECTION_TEXT];
    of_text->query = of_text->query ? of_text->query : reading.told[SECTION_TOP].query;
    bool has_text = of_text->query != reading.told[SECTION_TOP].query || of_text->kv || of_text->is_list;
    model->heads[TP_TEXT] = heads_of(has_text ? of_text : &reading.told[SECTION_TOP]);
    model->heads[TP_VISION] = heads_of(&reading.told[SECTION_VISION]);
    model->heads[TP_AUDIO] = heads_of(&reading.told[SECTION_AUDIO]);
    return failed;
}

const struct tp_heads *tp_model_heads(const struct tp_model *model, const char *name, size_t name_length)
{
    static const struct {
        const char *part;
        enum tp_tower tower;
    } parts[] = {{"vision", TP_VISION}, {"visual", TP_VISION}, {"audio", TP_AUDIO}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (memmem(name, name_length, parts[i].part, strlen(parts[i].part)))
            return &model->heads[parts[i].tower];
    return &model->heads[TP_TEXT];
}
