/* JSON values that are written like one before them, except for their numbers: the boxes of a topology, the entries of a header.
 *
 *     {"shape": [12, 4], "file": 3}   ->   '{"shape": ['  12  ', '  4  '], "file": '  3  '}'
 *
 * A parser that has read a valid value remembers its text. A value with the same text between its numbers has the same keys and
 * nesting, so it needs no parsing; others are parsed. Values; pure. */
#ifndef BASE_JSON_MOLD_H
#define BASE_JSON_MOLD_H

#include "base/json.h"

enum { JSON_MOLD_MAX_NUMBERS = 16, JSON_MOLD_MAX_CHARS = 400 };

struct json_mold {
    char text[JSON_MOLD_MAX_CHARS];                 /* between the numbers, one piece behind the other */
    uint16_t piece_ends[JSON_MOLD_MAX_NUMBERS + 1]; /* in text */
    uint16_t n_numbers;
    bool is_set;
};

/* `text` is one object or array, and good JSON. Not set when it has more than fits, escapes, or not so many numbers. */
void json_mold_set(struct json_mold *mold, const char *text, size_t length, size_t n_numbers);

/* Moves over the next value when it fits a mold that is set; `numbers` are those of the value in their order, all of them
 * integers without a sign. False: nothing has happened. */
bool json_mold_take(const struct json_mold *mold, struct json *json, uint64_t numbers[JSON_MOLD_MAX_NUMBERS]);

#endif
