/* Packs errors for the trailers of a call; see rpc_status.h. */
#include "rpc/rpc_status.h"

#include <string.h>

#include "base/text.h"
#include "google/rpc/status.pb-c.h"

static void copy_text(char *to, size_t room, const char *from)
{
    size_t length = strnlen(from, room - 1);
    while (length && from[length] && ((unsigned char)from[length] & 0xc0) == 0x80)
        length--; /* not inside a character */
    memcpy(to, from, length);
    to[length] = '\0';
    for (size_t i = 0; !text_is_utf8(to, length) && i < length; i++)
        if ((unsigned char)to[i] >= 0x80)
            to[i] = '?'; /* a message that was built carelessly must not cost the client its status */
}

enum { MAX_NOTES = 8, NOTE_OVERHEAD_BYTES = 16 };

void rpc_status_build(const struct error *error, struct rpc_status *status)
{
    copy_text(status->message, sizeof status->message, error->message);
    uint8_t packed[sizeof error->reason + 64 + MAX_NOTES * NOTE_OVERHEAD_BYTES + sizeof error->notes];
    char reason[sizeof error->reason];
    copy_text(reason, sizeof reason, error->reason);
    Google__Rpc__MetadataEntry entries[MAX_NOTES], *metadata[MAX_NOTES];

    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    info.reason = reason;
    info.domain = "tensorcast";
    info.metadata = metadata;
    const char *value;
    for (const char *key = NULL; info.n_metadata < MAX_NOTES && (key = error_next_note(error, key, &value)) != NULL;) {
        Google__Rpc__MetadataEntry *entry = metadata[info.n_metadata] = &entries[info.n_metadata];
        google__rpc__metadata_entry__init(entry);
        entry->key = key;
        entry->value = value;
        info.n_metadata++;
    }
    Google__Rpc__Detail detail = GOOGLE__RPC__DETAIL__INIT, *details[] = {&detail};
    detail.type_url = "type.googleapis.com/google.rpc.ErrorInfo";
    detail.value.data = packed;
    detail.value.len = google__rpc__error_info__pack(&info, packed);

    Google__Rpc__Status message = GOOGLE__RPC__STATUS__INIT;
    message.code = (int32_t)error->code;
    message.message = status->message;
    message.n_details = 1;
    message.details = details;
    _Static_assert(sizeof status->message + sizeof packed + 128 <= sizeof status->details, "details always fit");
    status->details_bytes = google__rpc__status__pack(&message, status->details);
}
