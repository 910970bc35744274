# Each file of src/kernels/instruction_sets is compiled for one instruction set, and the program chooses among them at
# run time. Other files must not be compiled with these options, so these files are not compiled in batches with others.
function(fettle_instruction_set name)
  set(file ${CMAKE_SOURCE_DIR}/src/kernels/instruction_sets/${name}.cpp)
  set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-O3;-ffp-contract=fast;-fno-math-errno;-Wno-psabi;${ARGN}")
  target_sources(fettle_kernels PRIVATE ${file})
endfunction()

fettle_instruction_set(portable)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512)
  fettle_instruction_set(avx2 -mavx2 -mfma)
  fettle_instruction_set(avx512 ${avx512})
  fettle_instruction_set(avx512_bf16 ${avx512} -mavx512bf16)
  fettle_instruction_set(amx_bf16 ${avx512} -mavx512bf16 -mamx-tile -mamx-bf16)
  fettle_instruction_set(amx_f32 ${avx512} -mamx-tile -mamx-bf16)
endif()
