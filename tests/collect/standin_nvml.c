/* A stand-in for libnvidia-ml.so.1 that the tests build: a machine of STANDIN_GPUS GPUs (default 2) with four NVLinks
 * each, two to the next GPU and two to a switch, and faults on request.
 *
 *   STANDIN_HANG=FUNCTION[@GPU]         that call never returns
 *   STANDIN_CRASH=FUNCTION[@GPU]        that call ends the process
 *   STANDIN_FAIL=FUNCTION[@GPU]:CODE,…  that call fails with CODE
 *   STANDIN_LOST=GPU                    every call about that GPU fails with 15 once its name was read
 *   STANDIN_BYTES=1                     names and UUIDs are not UTF-8
 *   STANDIN_COUNT=N                     the number of GPUs that is told
 *   STANDIN_ONES=1                      numbers are all ones
 *   STANDIN_LOG=FILE                    one line per call: process, function
 * Built with -DWITHOUT_FUNCTION, that function is not exported, as in an older driver.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; int named; int epoch; } gpu_t;
typedef gpu_t *device_t;
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
} pci_t;
typedef struct {
    unsigned field, scope;
    long long stamp, latency;
    unsigned type, result;
    union { double d; unsigned ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } value;
} field_t;

static gpu_t gpus[64];
static int running, epoch;
static pid_t owner;

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static int named(const char *list, const char *function, int gpu, int *code) {
    char copy[512], *rest = NULL;
    if (!list) return 0;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *colon = strchr(item, ':'), *at;
        if (colon) { *colon = 0; if (code) *code = atoi(colon + 1); }
        at = strchr(item, '@');
        if (at) *at = 0;
        if (!strcmp(item, function) && (!at || atoi(at + 1) == gpu)) return 1;
    }
    return 0;
}

static int enter(const char *function, int gpu) {
    int code = 999, known = 0;
    const char *log = getenv("STANDIN_LOG");
    if (log) {
        FILE *stream = fopen(log, "a");
        if (stream) { fprintf(stream, "%d %s\n", (int)getpid(), function); fclose(stream); }
    }
    if (named(getenv("STANDIN_HANG"), function, gpu, NULL)) for (;;) pause();
    if (named(getenv("STANDIN_CRASH"), function, gpu, NULL)) abort();
    if (named(getenv("STANDIN_FAIL"), function, gpu, &code)) known = code;
    return known;
}

#define SYSTEM(function) do { int e = enter(#function, -1); if (e) return e; if (!running) return 1; } while (0)
#define DEVICE(function) do { \
    int e = enter(#function, device ? device->index : -1); \
    if (e) return e; \
    if (!running || owner != getpid()) return 1; \
    if (!device || device->epoch != epoch) return 2; \
    if (number("STANDIN_LOST", -1) == device->index && device->named) return 15; \
} while (0)
static unsigned ones(unsigned value) { return getenv("STANDIN_ONES") ? 0xFFFFFFFFu : value; }

int nvmlInitWithFlags(unsigned flags) {
    int e = enter("nvmlInitWithFlags", -1);
    if (e) return e;
    (void)flags;
    running++;
    owner = getpid();
    epoch++;
    return 0;
}
int nvmlShutdown(void) { SYSTEM(nvmlShutdown); running--; return 0; }
const char *nvmlErrorString(int code) { (void)code; enter("nvmlErrorString", -1); abort(); }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { SYSTEM(nvmlSystemGetDriverVersion); snprintf(text, size, "470.57.02"); return 0; }
int nvmlSystemGetCudaDriverVersion(int *version) { SYSTEM(nvmlSystemGetCudaDriverVersion); *version = (int)ones(11040); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    const char *told = getenv("STANDIN_COUNT");
    SYSTEM(nvmlDeviceGetCount_v2);
    *count = told ? (unsigned)strtoul(told, NULL, 10) : (unsigned)number("STANDIN_GPUS", 2);
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    int e = enter("nvmlDeviceGetHandleByIndex_v2", (int)index);
    if (e) return e;
    if (index >= (unsigned)number("STANDIN_GPUS", 2)) return 2;
    gpus[index].index = (int)index;
    gpus[index].epoch = epoch;
    *device = &gpus[index];
    return 0;
}
int nvmlDeviceGetName(device_t device, char *text, unsigned size) {
    DEVICE(nvmlDeviceGetName);
    snprintf(text, size, getenv("STANDIN_BYTES") ? "NVIDIA \xe9\xff" : "NVIDIA A100-SXM4-40GB");
    device->named = 1;
    return 0;
}
int nvmlDeviceGetUUID(device_t device, char *text, unsigned size) {
    DEVICE(nvmlDeviceGetUUID);
    snprintf(text, size, getenv("STANDIN_BYTES") ? "GPU-\xff%d" : "GPU-00000000-1111-4222-8333-%012d", device->index);
    return 0;
}
static void place(pci_t *info, unsigned bus, unsigned id) {
    memset(info, 0, sizeof *info);
    info->domain = ones(0);
    info->bus = ones(bus);
    info->device = ones(0);
    info->id = ones(id);
    snprintf(info->text, sizeof info->text, getenv("STANDIN_BYTES") ? "\xff.0" : "00000000:%02X:00.0", bus);
}
int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *info) { DEVICE(nvmlDeviceGetPciInfo_v3); place(info, 0x10u + (unsigned)device->index, 0x20b010de); return 0; }
int nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor) { DEVICE(nvmlDeviceGetCudaComputeCapability); *major = 8; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(device_t device, unsigned long long *memory) {
    DEVICE(nvmlDeviceGetMemoryInfo);
    memory[0] = getenv("STANDIN_ONES") ? ~0ull : 42949672960ull;
    memory[1] = memory[2] = 0;
    return 0;
}
int nvmlDeviceGetBAR1MemoryInfo(device_t device, unsigned long long *memory) { DEVICE(nvmlDeviceGetBAR1MemoryInfo); memory[0] = 68719476736ull; memory[1] = memory[2] = 0; return 0; }
#define NUMBER(function, value) int function(device_t device, unsigned *answer) { DEVICE(function); *answer = ones(value); return 0; }
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, 4)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 4)
#ifndef WITHOUT_nvmlDeviceGetGpuMaxPcieLinkGeneration
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, 4)
#endif
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, 0)
NUMBER(nvmlDeviceGetBrand, 14)
NUMBER(nvmlDeviceGetPerformanceState, 0)
NUMBER(nvmlDeviceGetVirtualizationMode, 0)
#ifndef WITHOUT_nvmlDeviceGetNumaNodeId
NUMBER(nvmlDeviceGetNumaNodeId, 0xFFFFFFFFu)
#endif
int nvmlDeviceGetMigMode(device_t device, unsigned *now, unsigned *later) { DEVICE(nvmlDeviceGetMigMode); *now = *later = ones((unsigned)number("STANDIN_MIG", 0)); return 0; }
int nvmlDeviceGetCpuAffinity(device_t device, unsigned words, unsigned long *set) { DEVICE(nvmlDeviceGetCpuAffinity); memset(set, 0, words * sizeof *set); set[0] = 0xF; return 0; }
int nvmlDeviceGetMemoryAffinity(device_t device, unsigned words, unsigned long *set, unsigned scope) { DEVICE(nvmlDeviceGetMemoryAffinity); (void)scope; memset(set, 0, words * sizeof *set); set[0] = 1; return 0; }
#ifndef WITHOUT_nvmlDeviceGetNvLinkState
int nvmlDeviceGetNvLinkState(device_t device, unsigned link, unsigned *active) { DEVICE(nvmlDeviceGetNvLinkState); if (link > 3) return 2; *active = 1; return 0; }
#endif
int nvmlDeviceGetNvLinkVersion(device_t device, unsigned link, unsigned *version) { DEVICE(nvmlDeviceGetNvLinkVersion); (void)link; *version = 4; return 0; }
int nvmlDeviceGetNvLinkRemoteDeviceType(device_t device, unsigned link, unsigned *type) { DEVICE(nvmlDeviceGetNvLinkRemoteDeviceType); *type = link < 2 ? 0 : 2; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t device, unsigned link, pci_t *info) {
    DEVICE(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    place(info, link < 2 ? 0x10u + (unsigned)((device->index + 1) % number("STANDIN_GPUS", 2)) : 0x20u, 0x20b010de);
    return 0;
}
int nvmlDeviceGetFieldValues(device_t device, int count, field_t *fields) {
    DEVICE(nvmlDeviceGetFieldValues);
    for (int i = 0; i < count; i++) {
        fields[i].result = 2;
        if (fields[i].field == 164 || (fields[i].field >= 84 && fields[i].field <= 89)) {
            fields[i].result = fields[i].field == 164 ? 2 : 0;  /* 164 is unknown to drivers before 520 */
            fields[i].type = getenv("STANDIN_ONES") ? 77 : 1;
            fields[i].value.ui = ones(25000);
        }
    }
    return 0;
}
#ifndef WITHOUT_nvmlDeviceGetC2cModeInfoV
int nvmlDeviceGetC2cModeInfoV(device_t device, unsigned *mode) { DEVICE(nvmlDeviceGetC2cModeInfoV); *mode = 0; return 0; }
#endif
#ifndef WITHOUT_nvmlDeviceGetGpuFabricInfoV
int nvmlDeviceGetGpuFabricInfoV(device_t device, unsigned *info) { DEVICE(nvmlDeviceGetGpuFabricInfoV); info[5] = 0; info[6] = 7; info[7] = 3; info[8] = 0; return 0; }
#endif
#ifndef WITHOUT_nvmlDeviceGetGpuFabricInfo
int nvmlDeviceGetGpuFabricInfo(device_t device, unsigned *info) { DEVICE(nvmlDeviceGetGpuFabricInfo); info[4] = 0; info[5] = 9; info[6] = 3; return 0; }
#endif
int nvmlDeviceGetTopologyCommonAncestor(device_t device, device_t other, unsigned *level) { DEVICE(nvmlDeviceGetTopologyCommonAncestor); *level = other == device ? 0 : 30; return 0; }
int nvmlDeviceGetP2PStatus(device_t device, device_t other, unsigned capability, unsigned *status) { DEVICE(nvmlDeviceGetP2PStatus); (void)other; *status = capability == 4 ? 5 : 0; return 0; }
