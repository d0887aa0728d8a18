/* What hosts of one cluster sign: every part counts, nothing is taken twice, another key never fits. */
#include "tests/support/unit.h"

#include "hosts/proof.h"

static const unsigned char key[HOST_KEY_BYTES] = "0123456789abcdef0123456789abcde", other_key[HOST_KEY_BYTES] = "another";
static const struct host_settings keyed = {.has_key = true, .key = "0123456789abcdef0123456789abcde"};

static const struct proof_request request = {.method = "GET",
                                             .path = "/v1/host",
                                             .range = "bytes=0-9",
                                             .to = "abc",
                                             .time_ms = 1,
                                             .nonce = "00112233445566778899aabbccddeeff"};

TEST(each_part_of_a_request_is_signed)
{
    char proof[PROOF_CHARS], changed[PROOF_CHARS];
    struct proof_request others[] = {request, request, request, request, request, request};
    others[0].method = "HEAD";
    others[1].path = "/v1/hosts";
    others[2].range = "bytes=0-8";
    others[3].to = "abd";
    others[4].time_ms = 2;
    others[5].nonce = "10112233445566778899aabbccddeeff";
    proof_of_request(key, &request, proof);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        proof_of_request(key, &others[i], changed);
        assert_false(proof_equals(proof, changed));
    }
    proof_of_request(other_key, &request, changed);
    assert_false(proof_equals(proof, changed));
    proof_of_request(key, &request, changed);
    assert_true(proof_equals(proof, changed));
}

TEST(a_text_cannot_run_into_the_next_one)
{
    char proof[PROOF_CHARS], changed[PROOF_CHARS];
    struct proof_request moved = request;
    moved.path = "/v1/hostbytes=0-9";
    moved.range = "";
    proof_of_request(key, &request, proof);
    proof_of_request(key, &moved, changed);
    assert_false(proof_equals(proof, changed));
}

TEST(each_part_of_an_answer_is_signed)
{
    const struct proof_answer answer = {
        .request_proof = "p", .status = 206, .etag = "e", .content_range = "c", .body_sum = "s"};
    struct proof_answer others[] = {answer, answer, answer, answer, answer};
    char proof[PROOF_CHARS], changed[PROOF_CHARS];
    others[0].request_proof = "q";
    others[1].status = 200;
    others[2].etag = "f";
    others[3].content_range = "d";
    others[4].body_sum = "t";
    proof_of_answer(key, &answer, proof);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        proof_of_answer(key, &others[i], changed);
        assert_false(proof_equals(proof, changed));
    }
    assert_false(proof_equals(proof, ""));
}

TEST(an_answer_holds_by_its_proof_where_there_is_a_key_and_by_its_sum_elsewhere)
{
    const struct host_settings open = {.has_key = false};
    const struct proof_answer answer = {
        .request_proof = "p", .status = 200, .etag = "", .content_range = "", .body_sum = "crc32c=00000000"};
    char proof[PROOF_CHARS];
    proof_of_answer(keyed.key, &answer, proof);
    assert_true(proof_holds(&keyed, &answer, proof, NULL));
    assert_false(proof_holds(&keyed, &answer, NULL, answer.body_sum));
    assert_false(proof_holds(&keyed, &answer, "", answer.body_sum));
    assert_true(proof_holds(&open, &answer, NULL, answer.body_sum));
    assert_false(proof_holds(&open, &answer, proof, NULL));
    assert_false(proof_holds(&open, &answer, proof, "crc32c=00000001"));
}

/* Of a body in pieces of so many bytes. */
static const char *sum_of(const struct host_settings *settings, const char *request_proof, const void *body, size_t bytes,
                          size_t piece, char text[BODY_SUM_CHARS])
{
    struct body_sum sum;
    body_sum_begin(&sum, settings, request_proof);
    for (size_t at = 0; at < bytes; at += piece)
        body_sum_add(&sum, (const char *)body + at, bytes - at < piece ? bytes - at : piece);
    body_sum_finish(&sum, text);
    return text;
}

/* The first two were made with: openssl mac -cipher AES-256-GCM -macopt hexkey:KEY -macopt hexiv:000000000000000000000000 GMAC,
 * where KEY is HMAC-SHA256 of the cluster's key over the SHA-256 of both texts, each behind its length as 8 bytes. */
TEST(a_body_has_one_sum_however_it_is_cut)
{
    const struct host_settings open = {.has_key = false};
    static char body[100003];
    char text[BODY_SUM_CHARS];
    for (size_t i = 0; i < sizeof body; i++)
        body[i] = (char)(i * 7 + i / 251);
    assert_string_equal(sum_of(&keyed, "p", "tensorcast", 10, 10, text), "gmac=b8710ba5014fbcc7e969c975d1ff7331");
    assert_string_equal(sum_of(&keyed, "p", "", 0, 1, text), "gmac=ab6a171bf84739f2a49ba112399fd827");
    assert_string_equal(sum_of(&open, "p", "123456789", 9, 2, text), "crc32c=e3069283");
    for (int i = 0; i < 2; i++) {
        char whole[BODY_SUM_CHARS];
        sum_of(i ? &keyed : &open, "p", body, sizeof body, sizeof body, whole);
        for (size_t piece = 1; piece < 70000; piece = piece * 3 + 1)
            assert_string_equal(sum_of(i ? &keyed : &open, "p", body, sizeof body, piece, text), whole);
        body[50000] ^= 1;
        assert_string_not_equal(sum_of(i ? &keyed : &open, "p", body, sizeof body, 4096, text), whole);
    }
}

TEST(the_sums_of_two_answers_have_nothing_in_common)
{
    const struct host_settings other = {.has_key = true, .key = "another"};
    char one[BODY_SUM_CHARS], another[BODY_SUM_CHARS];
    sum_of(&keyed, "p", "body", 4, 4, one);
    assert_string_not_equal(one, sum_of(&keyed, "q", "body", 4, 4, another));
    assert_string_not_equal(one, sum_of(&other, "p", "body", 4, 4, another));
}

TEST(a_nonce_is_taken_once_while_its_request_could_be_valid)
{
    struct proof_nonces *nonces = proof_nonces_create();
    char nonce[PROOF_NONCE_CHARS], others[PROOF_NONCE_CHARS];
    proof_make_nonce(nonce);
    uint64_t now_ms = 1000000;
    assert_true(proof_nonces_take(nonces, nonce, now_ms));
    for (uint64_t later_ms = 0; later_ms <= 2 * PROOF_WINDOW_MS; later_ms += 1000) {
        assert_false(proof_nonces_take(nonces, nonce, now_ms + later_ms));
        proof_make_nonce(others);
        assert_true(proof_nonces_take(nonces, others, now_ms + later_ms));
    }
    proof_nonces_destroy(nonces);
}

TEST(a_flood_of_nonces_is_refused_at_a_million_and_taken_again_later)
{
    struct proof_nonces *nonces = proof_nonces_create();
    char nonce[PROOF_NONCE_CHARS];
    for (unsigned i = 0; i < 1u << 20; i++) {
        snprintf(nonce, sizeof nonce, "%016x0000000000000000", 2 * i + 1);
        assert_true(proof_nonces_take(nonces, nonce, 1000000));
    }
    assert_false(proof_nonces_take(nonces, "ffffffffffffffff0000000000000000", 1000000));
    assert_true(proof_nonces_take(nonces, "ffffffffffffffff0000000000000000", 1000001 + 2 * PROOF_WINDOW_MS));
    assert_false(proof_nonces_take(nonces, nonce, 1000001 + 2 * PROOF_WINDOW_MS));
    proof_nonces_destroy(nonces);
}
