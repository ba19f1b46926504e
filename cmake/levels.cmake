# Kernel levels: one source file a level, compiled with the flags of its line here and of no other place.
# A new level is a line here, a file, and a row in the list of levels of who dispatches it.
set(CA_AVX2 -mavx2 -mfma -mf16c)
set(CA_AVX512 ${CA_AVX2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)

set(CA_FLAGS_avx2 ${CA_AVX2})
set(CA_FLAGS_avx512 ${CA_AVX512})
set(CA_FLAGS_avx512_vnni ${CA_AVX512} -mavx512vnni)
set(CA_FLAGS_avx512_bf16 ${CA_AVX512} -mavx512vnni -mavx512bf16)
set(CA_FLAGS_amx ${CA_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16 -mamx-int8)
set(CA_FLAGS_amx_int8 ${CA_FLAGS_amx})

# Add <folder>/<level>.c to target for each level in ARGN whose file exists; nothing where the CPU is not x86-64.
function(ca_add_x86_levels target folder)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    return()
  endif()
  foreach(level ${ARGN})
    set(source ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${level}.c)
    if(EXISTS ${source})
      target_sources(${target} PRIVATE ${source})
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${CA_FLAGS_${level}}")
    endif()
  endforeach()
endfunction()
