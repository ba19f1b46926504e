# Kernel levels: one source file for each, compiled with the flags of its line here and nowhere else. A new level is a row in
# chunkattn/base/levels.def, a line here and a file for each that dispatches it.
# Functions begin at cache lines: elsewhere an unrelated change can move a tile's loop, and cost 3 % (docs/experiments.md).
set(CA_AVX2 -mavx2 -mfma -mf16c -falign-functions=64)
set(CA_AVX512 ${CA_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)

set(CA_FLAGS_avx2 ${CA_AVX2})
set(CA_FLAGS_avx_vnni ${CA_AVX2} -mavxvnni)
set(CA_FLAGS_avx512 ${CA_AVX512})
set(CA_FLAGS_avx512_vnni ${CA_AVX512} -mavx512vnni)
set(CA_FLAGS_avx512_bf16 ${CA_AVX512} -mavx512vnni -mavx512bf16)
set(CA_FLAGS_amx ${CA_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16 -mamx-int8)

# Sanitized kernels take the compiler a minute a file, and no test runs those above its CPU's level or CATTN_LEVEL.
set(CATTN_HIGHEST_LEVEL "" CACHE STRING "The highest level that is built; empty: the list's highest")

# The list's levels but "ref", which is plain C; none where the CPU is not x86-64.
set(CA_X86_LEVELS)
set(is_above OFF)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/chunkattn/base/levels.def)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  file(STRINGS ${PROJECT_SOURCE_DIR}/chunkattn/base/levels.def rows REGEX "^CA_LEVEL\\(")
  foreach(row ${rows})
    string(REGEX REPLACE "^CA_LEVEL\\(([a-z0-9_]+),.*" "\\1" level "${row}")
    if(level STREQUAL "ref")
      continue()
    endif()
    if(NOT CA_FLAGS_${level})
      message(FATAL_ERROR "chunkattn/base/levels.def has the level ${level}; set CA_FLAGS_${level} in cmake/levels.cmake")
    endif()
    if(is_above)
      add_compile_definitions(CA_WITHOUT_${level})
    else()
      list(APPEND CA_X86_LEVELS ${level})
    endif()
    if(level STREQUAL CATTN_HIGHEST_LEVEL)
      set(is_above ON)
    endif()
  endforeach()
  if(CATTN_HIGHEST_LEVEL AND NOT is_above)
    message(FATAL_ERROR "CATTN_HIGHEST_LEVEL is ${CATTN_HIGHEST_LEVEL}; it must be one of ${CA_X86_LEVELS}")
  endif()
endif()

# Add a source to target that only CPUs of a level run; nothing where the list lacks the level.
function(ca_add_level_source target level source)
  if(level IN_LIST CA_X86_LEVELS)
    target_sources(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set(flags ${CA_FLAGS_${level}})
    if(CATTN_SANITIZE MATCHES fuzzer)
      list(APPEND flags -O0 -fno-sanitize=all) # clang needs up to minutes for these files otherwise
    endif()
    set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/${source} PROPERTIES COMPILE_OPTIONS "${flags}")
  endif()
endfunction()

# Add <prefix><level>.c to target for each level.
function(ca_add_level_sources target prefix)
  foreach(level ${CA_X86_LEVELS})
    ca_add_level_source(${target} ${level} ${prefix}${level}.c)
  endforeach()
endfunction()
