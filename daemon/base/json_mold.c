/* A mold's pieces have no digits outside of strings, so a number's end is where the next piece begins; see json_mold.h. */
#include "base/json_mold.h"

#include <string.h>

enum { MAX_DIGITS = 19 }; /* which no number of 64 bits exceeds */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void json_mold_set(struct json_mold *mold, const char *text, size_t length, size_t n_numbers)
{
    bool is_string = false;
    size_t used = 0;
    mold->is_set = false;
    mold->n_numbers = 0;
    for (size_t i = 0; i < length; i++) {
        bool is_number = !is_string && is_digit(text[i]);
        is_string ^= text[i] == '"';
        if (text[i] == '\\' || used == JSON_MOLD_MAX_CHARS || (is_number && mold->n_numbers == JSON_MOLD_MAX_NUMBERS))
            return;
        if (!is_number) {
            mold->text[used++] = text[i];
            continue;
        }
        mold->piece_ends[mold->n_numbers++] = (uint16_t)used;
        while (i + 1 < length && is_digit(text[i + 1]))
            i++;
    }
    mold->piece_ends[mold->n_numbers] = (uint16_t)used;
    mold->is_set = mold->n_numbers == n_numbers;
}

bool json_mold_take(const struct json_mold *mold, struct json *json, uint64_t numbers[JSON_MOLD_MAX_NUMBERS])
{
    const char *at = json->at, *end = json->end;
    size_t piece = 0;
    if (!mold->is_set || json->error)
        return false;
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    for (size_t i = 0;; i++) {
        size_t length = mold->piece_ends[i] - piece;
        if ((size_t)(end - at) < length || memcmp(at, mold->text + piece, length) != 0)
            return false;
        at += length;
        piece += length;
        if (i == mold->n_numbers)
            break;
        const char *from = at;
        for (numbers[i] = 0; at < end && is_digit(*at); at++)
            numbers[i] = numbers[i] * 10 + (uint64_t)(*at - '0');
        if (at == from || at - from > MAX_DIGITS || (*from == '0' && at - from > 1))
            return false;
    }
    json->at = at;
    return true;
}
