#include "observe/cause.h"

const char *const cause_names[CAUSES] = {
    [CAUSE_QUEUE] = "queue",   [CAUSE_GROUP] = "group",   [CAUSE_HEADERS] = "headers", [CAUSE_PLAN] = "plan",
    [CAUSE_MEMORY] = "memory", [CAUSE_STORE] = "store",   [CAUSE_DISK] = "disk",       [CAUSE_PEERS] = "peers",
    [CAUSE_COPY] = "copy",     [CAUSE_VERIFY] = "verify", [CAUSE_HANDOFF] = "handoff"};
