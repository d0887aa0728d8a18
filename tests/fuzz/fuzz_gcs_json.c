/* What Google Cloud Storage and Google's token endpoint answer. Reaches gcs_answer.c and gcp_key.c. Whatever is accepted
 * makes sense: a generation that is a number, a token that a header can carry. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "source/gcs/gcp_key.h"
#include "source/gcs/gcs_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_object(const struct gcs_object *object)
{
    if (!object->name[0] || !object->generation[0] || object->generation[strspn(object->generation, "0123456789")])
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gcs_object object = {0};
    struct gcs_page page;
    struct gcs_complaint complaint;
    struct gcp_token token;
    struct gcp_key key;
    struct error error;
    char text[GCP_COMPLAINT_CHARS];
    if (gcs_object_parse(data, size, &object, &error) == 0)
        check_object(&object);
    gcs_object_clear(&object);
    if (gcs_page_parse(data, size, &page, &error) == 0) {
        for (size_t i = 0; i < page.n_objects; i++)
            check_object(&page.objects[i]);
    }
    gcs_page_clear(&page);
    if (gcp_token_parse(data, size, &token, &error) == 0 && (strpbrk(token.text, "\r\n ") || token.expires_in_s <= 0))
        abort();
    gcp_token_clear(&token);
    if (gcp_key_parse(data, size, &key, &error) == 0 && !key.token_uri)
        abort();
    gcp_key_clear(&key);
    gcs_complaint_parse(data, size, &complaint);
    gcp_token_complaint(data, size, text);
    return 0;
}
