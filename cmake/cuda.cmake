# The CUDA backend. nvcc is called directly, not as a CMake language: that would link every program as C++, which nothing here is.
option(CATTN_CUDA "Build the CUDA backend, which needs nvcc and takes minutes" OFF)
set(CA_CUDA OFF)

# sm_80 is what Ampere and Ada run, sm_90a what Hopper runs; newer ones compile the PTX when they load it.
set(CA_CUDA_ARCHS 80 90a)
set(CA_NVCC_CODE -gencode=arch=compute_90,code=compute_90)
foreach(arch ${CA_CUDA_ARCHS})
  list(APPEND CA_NVCC_CODE -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()
# The host side needs no C++ runtime: no exceptions, no type information, no guards around statics.
set(CA_NVCC_FLAGS -O3 -std=c++17
    --threads=0 # the architectures side by side, on all processors
    -Xptxas=--register-usage-level=0 # otherwise the scheduler takes registers that the sums of 32 rows need, and spills
    -Xcompiler=-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall,-Wextra)
if(CATTN_WERROR)
  list(APPEND CA_NVCC_FLAGS -Werror=all-warnings)
endif()

# Whether nvcc can make an object file here; what it says otherwise goes to *why.
function(ca_try_nvcc works why)
  set(source ${PROJECT_BINARY_DIR}/try_nvcc.cu)
  file(WRITE ${source} "__global__ void empty() {}\n")
  execute_process(COMMAND ${CATTN_NVCC} -c -gencode=arch=compute_90a,code=sm_90a -o ${source}.o ${source}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(status EQUAL 0)
    set(${works} ON CACHE INTERNAL "")
  endif()
  set(${why} "${CATTN_NVCC} fails: ${output}" PARENT_SCOPE)
endfunction()

if(CATTN_CUDA)
  find_program(CATTN_NVCC nvcc HINTS ENV CUDA_PATH PATH_SUFFIXES bin PATHS /usr/local/cuda/bin)
  set(why "nvcc is not found; set CATTN_NVCC to its path")
  if(CMAKE_CROSSCOMPILING)
    set(why "this is a cross build")
  elseif(CATTN_NVCC)
    if(NOT CA_NVCC_WORKS)
      ca_try_nvcc(CA_NVCC_WORKS why)
    endif()
    if(CA_NVCC_WORKS)
      get_filename_component(CUDAToolkit_ROOT ${CATTN_NVCC}/../.. ABSOLUTE)
      find_package(CUDAToolkit QUIET)
      set(why "the static runtime library of ${CATTN_NVCC} is not found")
      if(TARGET CUDA::cudart_static)
        set(CA_CUDA ON)
      endif()
    endif()
  endif()
  if(NOT CA_CUDA)
    message(FATAL_ERROR "CATTN_CUDA is ON, but ${why}")
  endif()
endif()

# Compile CUDA sources into object files, whose paths *objects gets. FLAGS: of nvcc, besides its usual ones.
function(ca_cuda_objects objects)
  cmake_parse_arguments(PARSE_ARGV 1 cuda "" "" "FLAGS")
  set(made)
  foreach(source ${cuda_UNPARSED_ARGUMENTS})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${CATTN_NVCC} -c ${CA_NVCC_FLAGS} ${cuda_FLAGS} ${CA_NVCC_CODE} -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include
              -MD -MT ${object} -MF ${object}.d -o ${object} ${CMAKE_CURRENT_SOURCE_DIR}/${source}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "Building CUDA object ${source}.o" VERBATIM)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    list(APPEND made ${object})
  endforeach()
  set(${objects} ${made} PARENT_SCOPE)
endfunction()
