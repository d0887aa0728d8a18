/* A config.json is corrected where it is wrong and nowhere else. */
#include "tests/support/unit.h"

#include "variant/documents.h"

static const struct config_correction plain = {.drop_quantization = true, .dtype = DTYPE_F16},
                                      halves = {.set_dtype = true, .dtype = DTYPE_F16},
                                      both = {.drop_quantization = true, .set_dtype = true, .dtype = DTYPE_F16};

static void becomes(const char *json, const struct config_correction *correction, const char *wanted)
{
    struct config_corrected corrected;
    config_correct(json, strlen(json), correction, &corrected);
    if ((corrected.text == NULL) != (wanted == NULL) || (wanted && strcmp(corrected.text, wanted) != 0))
        fail_msg("%s became %s", json, corrected.text ? corrected.text : "nothing else");
    assert_int_equal(corrected.text ? corrected.length : 0, wanted ? strlen(wanted) : 0);
    free(corrected.text);
}

TEST(a_quantization_goes_with_one_comma)
{
    becomes("{\"a\": 1, \"quantization_config\": {\"x\": [1, {}]},\n \"b\": 2}", &plain, "{\"a\": 1,\n \"b\": 2}");
    becomes("{\"quantization_config\": {} , \"b\": 2}", &plain, "{ \"b\": 2}");
    becomes("{\"a\": 1 , \"quantization_config\": null\n}\n", &plain, "{\"a\": 1\n}\n");
    becomes("{ \"quantization_config\": 1 }", &plain, "{ }");
    becomes("{\"quantization_config\": 1, \"compression_config\": 2, \"a\": 3}", &plain, "{ \"a\": 3}");
    becomes("{\"quantization_config\": 1, \"compression_config\": 2}", &plain, "{}");
    becomes("{\"a\": 3, \"quantization_config\": 1, \"compression_config\": 2}", &plain, "{\"a\": 3}");
    becomes("{\"text_config\": {\"quantization_config\": {}, \"a\": 1}}", &plain, "{\"text_config\": { \"a\": 1}}");
    becomes("{\"other\": {\"quantization_config\": {}}}", &plain, NULL);
    becomes("{\"quantization_config\": {}}", &halves, NULL);
}

TEST(types_are_replaced_where_they_are_the_models)
{
    becomes("{\"dtype\":\"float32\" }", &halves, "{\"dtype\":\"float16\" }");
    becomes("{\"torch_dtype\": \"torch.bfloat16\", \"x\": \"bfloat16\"}", &halves,
            "{\"torch_dtype\": \"torch.float16\", \"x\": \"bfloat16\"}");
    becomes("{\"dtype\": \"float32\", \"vision_config\": {\"torch_dtype\": \"bfloat16\"}, \"text_config\": {\"x_config\": "
            "{\"dtype\": \"float64\"}}}",
            &halves,
            "{\"dtype\": \"float16\", \"vision_config\": {\"torch_dtype\": \"float16\"}, \"text_config\": {\"x_config\": "
            "{\"dtype\": \"float16\"}}}");
    static const char *const kept[] = {"{\"dtype\": \"float16\"}",
                                       "{\"dtype\": \"half\"}",
                                       "{\"dtype\": \"auto\"}",
                                       "{\"dtype\": null}",
                                       "{\"dtype\": {\"text\": \"float32\"}}",
                                       "{\"layers\": [{\"dtype\": \"float32\"}]}",
                                       "{\"quantization_config\": {\"dtype\": \"float32\"}}"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        becomes(kept[i], &halves, NULL);
}

TEST(both_at_once_leave_every_other_byte)
{
    becomes("{\n\t\"x\" : 1.50, \"quantization_config\": {\"dtype\": "
            "\"float32\"},\n\t\"dtype\":\"float32\",\"y\":\"\\u00e9\" }\n\n",
            &both, "{\n\t\"x\" : 1.50,\n\t\"dtype\":\"float16\",\"y\":\"\\u00e9\" }\n\n");
}

TEST(what_python_writes_is_corrected_too)
{
    becomes("{\"clip\": -Infinity, \"dtype\": \"float32\", \"loss\": NaN}", &both,
            "{\"clip\": -Infinity, \"dtype\": \"float16\", \"loss\": NaN}");
}

TEST(what_is_no_object_of_json_stays_as_it_is)
{
    static const char *const kept[] = {"", "[]", "{\"dtype\": \"float32\"", "{\"quantization_config\": {}} x", "\"dtype\""};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        becomes(kept[i], &both, NULL);
}

TEST(what_it_said_before_is_told)
{
    static const char json[] = "{\"dtype\": \"float64\", \"text_config\": {\"dtype\": \"bfloat16\"}}";
    struct config_corrected corrected;
    config_correct(json, strlen(json), &plain, &corrected);
    assert_null(corrected.text);
    assert_true(corrected.has_other_dtype);
    assert_int_equal(corrected.other_dtype, DTYPE_F64);
    assert_false(corrected.has_dropped);
}
