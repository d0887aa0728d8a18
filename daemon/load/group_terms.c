/* Texts, because messages show them and the comparison is the same for all; see group_terms.h. */
#include "load/group_terms.h"

#include <stdio.h>
#include <string.h>

enum {
    MAX_POLICY_CHARS = 512,
    MAX_ATTEMPT_CHARS = 1024,
    EXPLAIN_WAIT_MS = 500, /* for ranks that are explained at the same time; nobody waits 15 s for a plan */
};

static const char *policy_of(struct preparation *prep)
{
    static const char *const collective[] = {"auto", "required", "disabled"};
    static const char *const locality[] = {"auto", "host_local", "shared_source"};
    const struct load_spec *spec = &prep->resolved.spec;
    const struct execution_topology *topology = &spec->topology;
    char text[MAX_POLICY_CHARS];
    snprintf(text, sizeof text, "collective=%s executor=%s source_locality=%s source_sharing_domain=%s",
             collective[spec->policy.collective], executor_preference_names[spec->policy.executor],
             locality[topology->source_locality], topology->source_sharing_domain ? topology->source_sharing_domain : "");
    return arena_text(&prep->resolved.arena, text, strlen(text));
}

struct group_terms group_terms_of(struct preparation *prep, uid_t uid, uid_t owner)
{
    const struct execution_topology *topology = &prep->resolved.spec.topology;
    const struct artifact *artifact = prep->resolved.mapping->artifact;
    bool is_plan = prep->goal == GOAL_PLAN;
    uint64_t timeout_ms = prep->config->engine.strategy.owner_file_collective_group_assemble_timeout_ms;
    return (struct group_terms){.uid = uid,
                                .owner = owner,
                                .id = topology->group_id,
                                .purpose = is_plan ? "explain" : "load",
                                .world_size = topology->world_size,
                                .reference = artifact->reference,
                                .artifact = artifact->source_key,
                                .files = artifact->stored ? artifact->stored->identity : artifact->identity,
                                .policy = policy_of(prep),
                                .timeout_ms = is_plan && timeout_ms > EXPLAIN_WAIT_MS ? EXPLAIN_WAIT_MS : timeout_ms};
}

const char *group_attempt_of(struct preparation *prep, const struct group_terms *terms)
{
    char text[MAX_ATTEMPT_CHARS];
    const char *attempt = prep->resolved.spec.topology.attempt;
    if (!attempt || prep->goal == GOAL_PLAN || prep->is_lent)
        return NULL;
    snprintf(text, sizeof text, "%s %s %s %zu %s %s", terms->artifact, prep->resolved.mapping->view_digest,
             prep->resolved.target.device->caps.name, strlen(attempt), attempt, terms->policy);
    return arena_text(&prep->resolved.arena, text, strlen(text));
}
