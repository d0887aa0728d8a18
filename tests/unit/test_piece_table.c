/* What tables of pieces have in common: names to records, lists by tensor, rings of copies. */
#include "tests/support/unit.h"

#include "resolve/piece_table.h"
#include "resolve/safetensors.h"

static const char *const files[] = {"0", "1", "2"};

/* Three files, each with x and y of four bytes, y first in the second one. */
static struct artifact_table *create(struct part_header *headers[3], struct error *error)
{
#define ENTRY(name, at, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #at "," #end "]}"
    static const char *const texts[] = {"{" ENTRY("x", 0, 4) "," ENTRY("y", 4, 8) "}",
                                        "{" ENTRY("y", 0, 4) "," ENTRY("x", 4, 8) "}",
                                        "{" ENTRY("x", 0, 4) "," ENTRY("y", 4, 8) "}"};
    for (size_t i = 0; i < 3; i++)
        headers[i] = safetensors_parse(texts[i], strlen(texts[i]), 8 + strlen(texts[i]) + 8, error);
    struct artifact_table *table = artifact_table_create(headers, files, 3, 0, 6, error);
    for (size_t i = 0; i < 3; i++)
        part_header_unref(headers[i]);
    return table;
}

static struct artifact_table *fill_table(struct error *error)
{
    struct part_header *headers[3];
    struct artifact_table *table = create(headers, error);
    struct piece_builder builder = {.table = table, .error = error};
    for (uint32_t file = 0; file < 3; file++) {
        builder.guess = 0;
        for (size_t i = 0; i < 2; i++) {
            const struct stored_tensor *stored = &table->headers[file]->tensors[i];
            uint32_t record = piece_find_record(&builder, stored);
            assert_int_equal(record == MAP_NONE, file == 0);
            if (record == MAP_NONE)
                record = piece_add_record(&builder, stored);
            table->tensors[record].bytes = 4;
            piece_add(table, stored, file, record, NULL);
        }
    }
    return table;
}

TEST(arrays_of_one_name_are_one_tensor_whatever_their_order)
{
    struct error error;
    struct artifact_table *table = fill_table(&error);
    assert_int_equal(table->n_tensors, 2);
    assert_int_equal(piece_list_all(table, &error), 0);
    assert_string_equal(table->tensors[0].name, "x");
    assert_memory_equal(table->piece_lists, ((uint32_t[]){0, 3, 4, 1, 2, 5}), 6 * sizeof(uint32_t));
    assert_int_equal(table->tensors[1].first_piece, 3);
    assert_int_equal(piece_finish(table, &error), 0);
    assert_null(table->copies);
    assert_int_equal(table->total_bytes, 8);
    artifact_table_unref(table);
}

TEST(the_first_of_a_ring_stays_in_the_list)
{
    struct error error;
    struct artifact_table *table = fill_table(&error);
    assert_int_equal(piece_list_all(table, &error), 0);
    piece_join_copies(table, (uint32_t[]){0, 4}, 2); /* of x the first and the last */
    piece_join_copies(table, (uint32_t[]){1, 2, 5}, 3);
    assert_int_equal(piece_finish(table, &error), 0);
    assert_memory_equal(table->piece_lists, ((uint32_t[]){0, 3, 1}), 3 * sizeof(uint32_t));
    assert_true(table->tensors[0].n_pieces == 2 && table->tensors[1].n_pieces == 1);
    assert_memory_equal(table->copies, ((uint32_t[]){4, 2, 5, 3, 0, 1}), 6 * sizeof(uint32_t));
    artifact_table_unref(table);
}
