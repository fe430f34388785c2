/* A stand-in for NVIDIA's driver library whose calls cost nothing: what the agent then takes with a GPU is its own.
 *
 *   mkdir -p /tmp/stand-in && gcc -O1 -shared -fPIC -o /tmp/stand-in/libnvidia-ml.so.1 benchmarks/driver_stand_in.c
 *   LD_LIBRARY_PATH=/tmp/stand-in STAND_IN_GPUS=2 STAND_IN_UTILIZATION=90 gpuagent start
 *
 * Its answers are made up; nothing of them is a measurement.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef unsigned int uint;
typedef unsigned long long ulonglong;
typedef union { double d; uint ui; ulonglong ull; } Value;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { uint version; ulonglong total, reserved, free, used; } Memory;
typedef struct { uint field, scope; long long time, latency; int type, code; Value value; } Field;
typedef struct { ulonglong time; Value value; } Sample;
typedef struct { uint id; int code; double value; const char *names[3]; } Metric;
typedef struct { uint version, count; void *first, *second; Metric metrics[210]; } Metrics;
enum { UNSIGNED_INT = 1, NOT_SUPPORTED = 3, SAMPLES = 120, PERIOD_MICROS = 20000 };

static uint setting(const char *name, uint otherwise) {
    const char *text = getenv(name);
    return text ? (uint)atoi(text) : otherwise;
}

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(uint flags) { return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "the stand-in has no answer"; }
int nvmlDeviceGetCount_v2(uint *count) { *count = setting("STAND_IN_GPUS", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(uint index, void **device) { *device = (void *)(index + 1UL); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, uint size) {
    snprintf(uuid, size, "GPU-%08lx-0000-4000-8000-000000000000", (unsigned long)device);
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { return sscanf(uuid, "GPU-%lx", (unsigned long *)device) - 1; }
int nvmlDeviceGetMaxMigDeviceCount(void *device, uint *count) { return NOT_SUPPORTED; }
int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    rates->gpu = setting("STAND_IN_UTILIZATION", 0);
    rates->memory = rates->gpu / 2;
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, Memory *memory) {
    memory->total = memory->free = 1ULL << 37;
    memory->reserved = memory->used = 0;
    return 0;
}
int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].code = 0;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.ui = 76000;
    }
    return 0;
}
int nvmlDeviceGetTemperature(void *device, uint sensor, uint *celsius) { *celsius = 30; return 0; }
int nvmlDeviceGetClockInfo(void *device, uint clock, uint *mhz) { *mhz = 1980; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, ulonglong *reasons) { *reasons = 1; return 0; }
int nvmlDeviceGetTotalEccErrors(void *device, uint kind, uint counter, ulonglong *errors) { *errors = 0; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, ulonglong *millijoules) {
    *millijoules = (ulonglong)time(NULL) * 76000;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, uint *count, void *processes) { *count = 0; return 0; }
int nvmlDeviceGetSamples(void *device, uint kind, ulonglong since, uint *type, uint *count, Sample *samples) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    ulonglong newest = (now.tv_sec * 1000000ULL + now.tv_nsec / 1000) / PERIOD_MICROS * PERIOD_MICROS;
    for (int i = 0; samples && i < SAMPLES; i++) {
        samples[i].time = newest - (SAMPLES - 1 - i) * (ulonglong)PERIOD_MICROS;
        samples[i].value.ui = 76000 + samples[i].time / PERIOD_MICROS % 100;
    }
    *type = UNSIGNED_INT;
    *count = SAMPLES;
    return 0;
}
int nvmlGpmQueryDeviceSupport(void *device, uint *support) { support[1] = 1; return 0; }
int nvmlGpmSampleAlloc(void **sample) { *sample = malloc(4096); return 0; }
int nvmlGpmSampleFree(void *sample) { free(sample); return 0; }
int nvmlGpmSampleGet(void *device, void *sample) { return 0; }
int nvmlGpmMetricsGet(Metrics *wanted) {
    for (uint i = 0; i < wanted->count; i++) {
        wanted->metrics[i].code = 0;
        wanted->metrics[i].value = 0;
    }
    return 0;
}
