/* A folder as Hugging Face has them, of which the input is the files' texts: see tests/chunkllama/model/hf_folder.h. */
#include "fuzz.h"
#include "tests/chunkllama/model/hf_folder.h"
#include "use_model.h"

static char folder[HF_FOLDER_PATH];

static void remove_folder(void) { hf_folder_remove(folder); }

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    hf_folder_create(folder);
    return atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    hf_folder_write(folder, data, size);
    use_model(folder);
    return 0;
}
