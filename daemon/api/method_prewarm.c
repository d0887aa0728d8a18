/* Prewarm: answered when the replica is there, or at once when the client does not want to wait. Unpin: lets go of what
 * Prewarm has pinned. */
#include <stdlib.h>
#include <string.h>

#include "api/codec.h"
#include "api/report_fill.h"
#include "api/prewarms.h"
#include "base/memory.h"
#include "base/text.h"
#include "replica/replica.h"

typedef Tensorcast__Daemon__V1__LoadRequest load_request;

static void answer_warm(struct prewarm *prewarm, const struct load_result *result, const struct error *error)
{
    Tensorcast__Daemon__V1__PrewarmResponse response = TENSORCAST__DAEMON__V1__PREWARM_RESPONSE__INIT;
    struct arena arena = {0};
    if (error) {
        rpc_call_fail_quietly(prewarm->call, error);
    } else {
        response.report = report_fill(result, &arena);
        rpc_call_reply(prewarm->call, &response.base);
    }
    arena_fini(&arena);
    LIST_REMOVE(&prewarm->open, in_list);
    free(prewarm);
}

static struct load_info describe_prewarm(void *data)
{
    return ticket_describe(((struct prewarm *)data)->ticket);
}

static void on_cancel(void *data)
{
    prewarm_cancel(data);
}

static void detach(struct rpc_call *call, const struct api *api, const load_request *load, bool pin)
{
    Tensorcast__Daemon__V1__PrewarmResponse response = TENSORCAST__DAEMON__V1__PREWARM_RESPONSE__INIT;
    struct error error;
    if (prewarms_detach(api->prewarms, call, load, pin, &error) != 0)
        rpc_call_fail(call, &error);
    else
        rpc_call_reply(call, &response.base);
}

static void wait_for(struct rpc_call *call, const struct api *api, const load_request *load, bool pin)
{
    struct error error;
    struct ticket *ticket = api_ticket(api, call, load, false, &error);
    if (!ticket) {
        rpc_call_fail(call, &error);
        return;
    }
    struct prewarm *prewarm = memory_alloc(sizeof *prewarm);
    *prewarm = (struct prewarm){.api = api, .uid = rpc_call_uid(call), .pin = pin, .call = call, .ended = answer_warm};
    prewarm->open = (struct open_call){.call = call, .describe = describe_prewarm, .data = prewarm};
    LIST_INSERT_HEAD(api->open_calls, &prewarm->open, in_list);
    rpc_call_on_cancel(call, on_cancel, prewarm);
    prewarm_run(prewarm, ticket);
}

void method_prewarm(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__PrewarmRequest *request = (const Tensorcast__Daemon__V1__PrewarmRequest *)message;
    load_request load = TENSORCAST__DAEMON__V1__LOAD_REQUEST__INIT;
    struct error error;
    if (!request->load) {
        fail(&error, ERROR_INVALID_ARGUMENT, "NO_LOAD_REQUEST", "the request has no load");
        rpc_call_fail(call, &error);
        return;
    }
    load = *request->load;
    if (request->pin && load.memory == TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_AUTO)
        load.memory = TENSORCAST__DAEMON__V1__MEMORY_PREFERENCE__MEMORY_PREFERENCE_COPIED; /* pages are the kernel's */
    (request->detach ? detach : wait_for)(call, context, &load, request->pin);
}

/* --- unpin ---------------------------------------------------------------------------------------------------------- */

void method_unpin(struct rpc_call *call, const ProtobufCMessage *message, void *context)
{
    const Tensorcast__Daemon__V1__UnpinRequest *request = (const Tensorcast__Daemon__V1__UnpinRequest *)message;
    const struct api *api = context;
    Tensorcast__Daemon__V1__UnpinResponse response = TENSORCAST__DAEMON__V1__UNPIN_RESPONSE__INIT;
    struct error error;
    char shown[TEXT_NAME_CHARS];
    if (request->all == (request->artifact[0] != '\0')) {
        fail(&error, ERROR_INVALID_ARGUMENT, "UNPIN_WHAT", "name one artifact, or all");
        rpc_call_fail(call, &error);
        return;
    }
    char *reference = request->all ? NULL : source_listed(request->artifact, &error);
    if (!reference && !request->all) {
        rpc_call_fail(call, &error);
        return;
    }
    uid_t uid = rpc_call_uid(call);
    const struct load_targets *targets = api->services.targets;
    struct user_pins_removed removed = {.replicas = prewarms_unpin(api->prewarms, uid, reference)};
    for (size_t i = 0; i < targets->n; i++) {
        struct user_pins_removed of_target = user_pins_remove(targets->list[i].replicas, uid, reference);
        removed.replicas += of_target.replicas;
        removed.bytes += of_target.bytes;
        removed.of_others += of_target.of_others;
    }
    response.replicas = removed.replicas;
    response.bytes = removed.bytes;
    if (reference)
        text_escape(reference, strlen(reference), shown);
    if (removed.replicas || !reference) {
        rpc_call_reply(call, &response.base);
    } else {
        fail(&error, removed.of_others ? ERROR_PERMISSION_DENIED : ERROR_NOT_FOUND, "NOT_PINNED",
             removed.of_others ? "%s is pinned by another user, who or root can unpin it"
                               : "%s is not pinned; 'tensorcast status' lists what is",
             shown);
        rpc_call_fail(call, &error);
    }
    free(reference);
}
