/*
 * The stand-in's devices and contexts: what is visible, what it is called, and
 * which context is current on a thread. A device has its primary context only.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "driver.h"

#define CONTEXT_STACK_MAX 16

struct CUctx_st {
    CUdevice device;
    unsigned retained, flags;
};

struct driver_settings driver_settings;
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t driver_progress = PTHREAD_COND_INITIALIZER;

static struct CUctx_st contexts[DRIVER_DEVICES_MAX];
static _Atomic pid_t initialised_by; /* the driver does not survive fork */
static _Atomic CUresult broken;
static _Thread_local CUcontext context_stack[CONTEXT_STACK_MAX];
static _Thread_local int context_depth;
static _Thread_local bool in_host_function;

static void uuid_of(int number, CUuuid *uuid)
{
    static const char prefix[] = "pinserve-driver";

    memcpy(uuid->bytes, prefix, sizeof prefix - 1);
    if (driver_settings.slice)
        memcpy(uuid->bytes, "slice", 5);
    uuid->bytes[15] = (char)number;
}

static void uuid_format(int number, char *text, size_t size)
{
    CUuuid uuid;
    size_t length = (size_t)snprintf(text, size, "GPU-");

    uuid_of(number, &uuid);
    for (int i = 0; i < 16; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%02x",
                                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                   (unsigned char)uuid.bytes[i]);
}

/* The number of the device that an entry of CUDA_VISIBLE_DEVICES names, or -1. */
static int device_by_name(const char *name, int count)
{
    char *end;
    long number = strtol(name, &end, 10);
    char uuid[64];

    if (end != name && !*end)
        return number >= 0 && number < count ? (int)number : -1;
    for (int i = 0; i < count; i++) {
        uuid_format(i, uuid, sizeof uuid);
        if (driver_settings.slice)
            memcpy(uuid, "MIG", 3);
        if (strlen(name) > 4 && !strncmp(uuid, name, strlen(name)))
            return i;
    }
    return -1;
}

static void read_visible(int count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char text[512], *rest = text;

    if (!visible) {
        for (int i = 0; i < count; i++)
            driver_settings.device_numbers[i] = i;
        driver_settings.devices = count;
        return;
    }
    snprintf(text, sizeof text, "%s", visible);
    driver_settings.devices = 0;
    for (char *name; driver_settings.devices < count && (name = strsep(&rest, ","));) {
        int number = device_by_name(name, count);

        if (number < 0)
            break;
        driver_settings.device_numbers[driver_settings.devices++] = number;
    }
}

static unsigned long setting(const char *name, unsigned long fallback)
{
    const char *value = getenv(name);

    return value && *value ? strtoul(value, NULL, 10) : fallback;
}

/* Asked for before cuInit, too. */
static int driver_version(void)
{
    return (int)setting("PINSERVE_DRIVER_VERSION", CUDA_VERSION);
}

CUresult cuInit(unsigned int flags)
{
    unsigned long devices = setting("PINSERVE_DRIVER_DEVICES", 1);

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    if (initialised_by)
        return initialised_by == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&driver_lock);
    driver_settings.memory = setting("PINSERVE_DRIVER_MEMORY", 4ul << 30);
    driver_settings.copy_delay_us = (unsigned)setting("PINSERVE_DRIVER_COPY_DELAY_US", 0);
    driver_settings.register_delay_ms = (unsigned)setting("PINSERVE_DRIVER_REGISTER_DELAY_MS", 0);
    driver_settings.fail_copy = (unsigned)setting("PINSERVE_DRIVER_FAIL_COPY", 0);
    driver_settings.break_copy = (unsigned)setting("PINSERVE_DRIVER_BREAK_COPY", 0);
    driver_settings.no_fd = setting("PINSERVE_DRIVER_NO_FD", 0) != 0;
    driver_settings.no_ipc = setting("PINSERVE_DRIVER_NO_IPC", 0) != 0;
    driver_settings.no_read_only = setting("PINSERVE_DRIVER_NO_READ_ONLY", 0) != 0;
    driver_settings.no_register = setting("PINSERVE_DRIVER_NO_REGISTER", 0) != 0;
    driver_settings.no_import = setting("PINSERVE_DRIVER_NO_IMPORT", 0) != 0;
    driver_settings.coherent = setting("PINSERVE_DRIVER_COHERENT", 0) != 0;
    driver_settings.slice = setting("PINSERVE_DRIVER_SLICE", 0) != 0;
    read_visible(devices < DRIVER_DEVICES_MAX ? (int)devices : DRIVER_DEVICES_MAX);
    for (int i = 0; i < DRIVER_DEVICES_MAX; i++)
        contexts[i].device = i;
    pthread_mutex_unlock(&driver_lock);
    if (!driver_settings.devices)
        return CUDA_ERROR_NO_DEVICE;
    initialised_by = getpid();
    return CUDA_SUCCESS;
}

CUresult driver_enter(bool need_context)
{
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    if (!initialised_by || initialised_by != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (broken)
        return broken;
    if (need_context && (!context_depth || !context_stack[context_depth - 1]))
        return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_SUCCESS;
}

void driver_break(CUresult error)
{
    broken = error;
    pthread_cond_broadcast(&driver_progress);
}

bool driver_is_broken(void)
{
    return broken != CUDA_SUCCESS;
}

void driver_set_in_host_function(bool inside)
{
    in_host_function = inside;
}

CUdevice driver_current_device(void)
{
    return context_stack[context_depth - 1]->device;
}

static CUresult enter_device(CUdevice device)
{
    CUresult result = driver_enter(false);

    if (result == CUDA_SUCCESS && (device < 0 || device >= driver_settings.devices))
        result = CUDA_ERROR_INVALID_DEVICE;
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = driver_version();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = driver_enter(false);

    if (result == CUDA_SUCCESS)
        *count = driver_settings.devices;
    return result;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = enter_device(ordinal);

    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result == CUDA_SUCCESS)
        uuid_of(driver_settings.device_numbers[device], uuid);
    return result;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result == CUDA_SUCCESS)
        snprintf(name, (size_t)length, "Stand-in device");
    return result;
}

CUresult cuDeviceGetPCIBusId(char *pci, int length, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result == CUDA_SUCCESS)
        snprintf(pci, (size_t)length, "0000:%02X:00.0",
                 0xa1u + (unsigned)driver_settings.device_numbers[device]);
    return result;
}

CUresult cuDeviceTotalMem(size_t *bytes, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result == CUDA_SUCCESS)
        *bytes = driver_settings.memory;
    return result;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result != CUDA_SUCCESS)
        return result;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = !driver_settings.no_fd;
        break;
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
        *value = !driver_settings.no_ipc;
        break;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
        *value = !driver_settings.no_read_only;
        break;
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        *value = !driver_settings.no_register;
        break;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        *value = 1;
        break;
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        *value = driver_settings.coherent;
        break;
    default:
        *value = 0;
        break;
    }
    return CUDA_SUCCESS;
}

/* One process at a time, until it ends. With the lock held. */
static bool is_exclusive_elsewhere(void)
{
    const char *path = getenv("PINSERVE_DRIVER_EXCLUSIVE");
    static int fd = -1;

    if (!path || !*path || fd >= 0)
        return false;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return false;
    close(fd);
    fd = -1;
    return true;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = enter_device(device);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    if (is_exclusive_elsewhere())
        result = CUDA_ERROR_DEVICE_UNAVAILABLE;
    else
        contexts[device].retained++;
    pthread_mutex_unlock(&driver_lock);
    if (result != CUDA_SUCCESS)
        return result;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = enter_device(device);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    if (!contexts[device].retained)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        contexts[device].retained--;
    pthread_mutex_unlock(&driver_lock);
    return result;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    CUresult result = enter_device(device);

    if (result == CUDA_SUCCESS)
        contexts[device].flags = flags;
    return result;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = enter_device(device);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&driver_lock);
    *flags = contexts[device].flags;
    *active = contexts[device].retained > 0;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    if (!context || context_depth == CONTEXT_STACK_MAX)
        return CUDA_ERROR_INVALID_CONTEXT;
    context_stack[context_depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = driver_enter(true);

    if (result != CUDA_SUCCESS)
        return result;
    context_depth--;
    if (context)
        *context = context_stack[context_depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = driver_enter(false);

    if (result != CUDA_SUCCESS)
        return result;
    if (context_depth)
        context_depth--;
    if (context)
        context_stack[context_depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = driver_enter(false);

    if (result == CUDA_SUCCESS)
        *context = context_depth ? context_stack[context_depth - 1] : NULL;
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = driver_enter(true);

    if (result == CUDA_SUCCESS)
        *device = driver_current_device();
    return result;
}

struct error_name {
    CUresult error;
    const char *name, *text;
};

static const struct error_name error_names[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const struct error_name *error_find(CUresult error)
{
    for (size_t i = 0; i < sizeof error_names / sizeof error_names[0]; i++)
        if (error_names[i].error == error)
            return &error_names[i];
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct error_name *found = error_find(error);

    *name = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct error_name *found = error_find(error);

    *text = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The newest version of a call that is here; the stand-in has one of each. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *status)
{
    static const char *const suffixes[] = {"_v4", "_v3", "_v2", ""};
    size_t first = 0;
    Dl_info self;
    void *library;
    char name[128];

    (void)flags;
    *function = NULL;
    if (!strcmp(symbol, "cuMemcpyBatchAsync"))
        first = version < 12080 || driver_version() < version ? 4 : version < 13000 ? 3 : 0;
    if (!dladdr((void *)(uintptr_t)&uuid_of, &self) ||
        !(library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD)))
        return CUDA_ERROR_UNKNOWN;
    for (size_t i = first; !*function && i < sizeof suffixes / sizeof suffixes[0]; i++) {
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[i]);
        *function = dlsym(library, name);
    }
    dlclose(library);
    if (status)
        *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
