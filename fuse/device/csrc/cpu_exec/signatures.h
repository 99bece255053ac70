// The C++ types of the operators that programs are made of, as `FUSE_SIGNATURE` is defined where
// this is included, in a function; two operators of each. An operator of another type is boxed when
// it runs uncompiled.
// clang-format off: a row each
using In = const at::Tensor&;
using Out = at::Tensor&;
using List = at::TensorList;
using Number = const at::Scalar&;
using MaybeIn = const std::optional<at::Tensor>&;
using Sizes = c10::SymIntArrayRef;
using Size = c10::SymInt;
using Ints = at::IntArrayRef;
using Type = at::ScalarType;
using MaybeType = std::optional<at::ScalarType>;
using MaybeDouble = std::optional<double>;
using MaybeBool = std::optional<bool>;
using MaybeLayout = std::optional<at::Layout>;
using MaybeDevice = std::optional<at::Device>;
using MaybeNumber = const std::optional<at::Scalar>&;
using Text = c10::string_view;
using MaybeText = std::optional<c10::string_view>;
using MaybeInts = at::OptionalIntArrayRef;
using Numbers = at::ArrayRef<at::Scalar>;
using MaybeFormat = std::optional<at::MemoryFormat>;
using MaybeInt = std::optional<int64_t>;
using Indices = const c10::List<std::optional<at::Tensor>>&;
using Mask = std::array<bool, 3>;
using MaybeSize = std::optional<c10::SymInt>;
using MaybeSizes = at::OptionalSymIntArrayRef;
using Inputs = const at::ITensorListRef&;
using at::Tensor;
using Tensors = std::vector<at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;
using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

FUSE_SIGNATURE(Tensor(In)) // acosh, erfc
FUSE_SIGNATURE(Tensor(In, In)) // hardswish_backward, pow.Tensor_Tensor
FUSE_SIGNATURE(Out(Out)) // acosh_, erfc_
FUSE_SIGNATURE(Out(Out, In)) // pow_.Tensor, div_.Tensor
FUSE_SIGNATURE(Tensors(List)) // _foreach_cosh, _foreach_exp
FUSE_SIGNATURE(void(List)) // _foreach_cosh_, _foreach_exp_
FUSE_SIGNATURE(Tensor(In, Number)) // pow.Tensor_Scalar, div.Scalar
FUSE_SIGNATURE(Out(Out, Number)) // pow_.Scalar, div_.Scalar
FUSE_SIGNATURE(Tensor(In, In, Number)) // rsub.Tensor, masked_fill.Scalar
FUSE_SIGNATURE(Tensors(List, Numbers)) // _foreach_clamp_max.ScalarList, _foreach_div.ScalarList
FUSE_SIGNATURE(Tensors(List, Number)) // _foreach_clamp_max.Scalar, _foreach_div.Scalar
FUSE_SIGNATURE(void(List, Numbers)) // _foreach_clamp_max_.ScalarList, _foreach_div_.ScalarList
FUSE_SIGNATURE(void(List, Number)) // _foreach_clamp_max_.Scalar, _foreach_div_.Scalar
FUSE_SIGNATURE(Tensor(Number, In)) // pow.Scalar, bitwise_right_shift.Scalar_Tensor
FUSE_SIGNATURE(Tensors(List, List)) // _foreach_clamp_max.List, _foreach_div.List
FUSE_SIGNATURE(Tensor(In, Number, Number)) // rsub.Scalar, hardtanh
FUSE_SIGNATURE(Tensor(In, In, In)) // where.self, masked_fill.Tensor
FUSE_SIGNATURE(void(List, List)) // _foreach_clamp_max_.List, _foreach_div_.List
FUSE_SIGNATURE(Tensor(In, Sizes)) // _adaptive_avg_pool2d, replication_pad2d
FUSE_SIGNATURE(Tensor(In, int64_t)) // logcumsumexp, _logcumsumexp
FUSE_SIGNATURE(Two(In, int64_t, bool)) // max.dim, sort
FUSE_SIGNATURE(Out(Out, Number, Number)) // hardtanh_, threshold_
FUSE_SIGNATURE(Out(Out, In, Number)) // masked_fill_.Scalar, sub_.Tensor
FUSE_SIGNATURE(Out(Out, In, In, Number, Number)) // addmm_, addmv_
FUSE_SIGNATURE(Tensor(In, In, Sizes)) // reflection_pad2d_backward, replication_pad1d_backward
FUSE_SIGNATURE(Tensor(In, In, In, Number, Number)) // addmm, addmv
FUSE_SIGNATURE(Out(Out, int64_t, In, In)) // index_copy_, scatter_add_
FUSE_SIGNATURE(Tensor(In, int64_t, bool)) // any.dim, _log_softmax
FUSE_SIGNATURE(Tensors(List, List, Number)) // _foreach_lerp.Scalar, _foreach_add.List
FUSE_SIGNATURE(Out(Out, In, In)) // masked_fill_.Tensor, masked_scatter_
FUSE_SIGNATURE(Tensor(In, MaybeType)) // prod, sum
FUSE_SIGNATURE(Tensor(In, Ints, bool)) // amin, logsumexp
FUSE_SIGNATURE(Tensor(In, MaybeInts, bool, MaybeType)) // sum.dim_IntList, nansum
FUSE_SIGNATURE(Tensor(In, Size)) // triu, tril
// upsample_bicubic2d, upsample_bilinear2d
FUSE_SIGNATURE(Tensor(In, Sizes, bool, MaybeDouble, MaybeDouble))
FUSE_SIGNATURE(Tensor(In, In, In, int64_t)) // soft_margin_loss_backward, mse_loss_backward
FUSE_SIGNATURE(Tensor(In, In, int64_t)) // mse_loss, glu_backward
FUSE_SIGNATURE(Tensor(In, int64_t, MaybeType)) // cumsum, _safe_softmax
FUSE_SIGNATURE(Tensor(In, int64_t, In, In)) // scatter_add, scatter.src
FUSE_SIGNATURE(void(List, List, Number)) // _foreach_lerp_.Scalar, _foreach_add_.List
FUSE_SIGNATURE(Two(In)) // log_sigmoid_forward, _aminmax
FUSE_SIGNATURE(Two(In, MaybeInts, MaybeNumber, bool)) // var_mean.correction, std_mean.correction
FUSE_SIGNATURE(Two(In, In, MaybeIn, int64_t, Size)) // nll_loss2d_forward, nll_loss_forward
FUSE_SIGNATURE(Two(In, int64_t)) // cummax, cummin
// _foreach_addcmul.ScalarList, _foreach_addcdiv.ScalarList
FUSE_SIGNATURE(Tensors(List, List, List, Numbers))
// _foreach_addcmul.Scalar, _foreach_addcdiv.Scalar
FUSE_SIGNATURE(Tensors(List, List, List, Number))
FUSE_SIGNATURE(Tensors(List, Number, MaybeType)) // _foreach_norm.Scalar, _foreach_powsum.Scalar
FUSE_SIGNATURE(Tensors(List, In)) // _foreach_div.Tensor, _foreach_mul.Tensor
FUSE_SIGNATURE(Out(Out, Size)) // triu_, tril_
FUSE_SIGNATURE(Out(Out, In, In, Number)) // addcmul_, addcdiv_
FUSE_SIGNATURE(Out(Out, int64_t, MaybeType)) // cumsum_, cumprod_
FUSE_SIGNATURE(Out(Out, int64_t, In, Number)) // scatter_.value, index_fill_.int_Scalar
FUSE_SIGNATURE(Tensor(Sizes, MaybeType, MaybeLayout, MaybeDevice, MaybeBool)) // zeros, ones
// scalar_tensor, arange
FUSE_SIGNATURE(Tensor(Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
// ones_like, zeros_like
FUSE_SIGNATURE(Tensor(In, MaybeType, MaybeLayout, MaybeDevice, MaybeBool, MaybeFormat))
FUSE_SIGNATURE(Tensor(In, MaybeInt, bool)) // argmax, argmin
FUSE_SIGNATURE(Tensor(In, Ints)) // flip, count_nonzero.dim_IntList
FUSE_SIGNATURE(Tensor(In, MaybeInts, bool)) // any.dims, all.dims
FUSE_SIGNATURE(Tensor(In, MaybeInts, MaybeNumber, bool)) // std.correction, var.correction
// new_zeros, new_ones
FUSE_SIGNATURE(Tensor(In, Sizes, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
// upsample_bilinear2d_backward, upsample_bicubic2d_backward
FUSE_SIGNATURE(Tensor(In, Sizes, Sizes, bool, MaybeDouble, MaybeDouble))
FUSE_SIGNATURE(Tensor(In, Sizes, int64_t, int64_t, int64_t)) // diagonal_backward, unfold_backward
// convolution_overrideable, convolution
FUSE_SIGNATURE(Tensor(In, In, MaybeIn, Sizes, Sizes, Sizes, bool, Sizes, Size))
FUSE_SIGNATURE(Tensor(In, In, Number, Number)) // softplus_backward, hardtanh_backward
// nll_loss_backward, nll_loss2d_backward
FUSE_SIGNATURE(Tensor(In, In, In, MaybeIn, int64_t, Size, In))
FUSE_SIGNATURE(Tensor(In, In, In, Number)) // addcmul, addcdiv
FUSE_SIGNATURE(Tensor(In, In, In, int64_t, double)) // smooth_l1_loss_backward, huber_loss_backward
FUSE_SIGNATURE(Tensor(In, In, int64_t, Type)) // _log_softmax_backward_data, _softmax_backward_data
FUSE_SIGNATURE(Tensor(In, In, int64_t, double)) // huber_loss, smooth_l1_loss
FUSE_SIGNATURE(Tensor(In, Indices)) // _unsafe_index.Tensor, index.Tensor
FUSE_SIGNATURE(Tensor(In, Indices, In, bool)) // _unsafe_index_put, index_put
FUSE_SIGNATURE(Tensor(In, int64_t, In, Number)) // scatter.value, index_fill.int_Scalar
// _foreach_addcmul_.ScalarList, _foreach_addcdiv_.ScalarList
FUSE_SIGNATURE(void(List, List, List, Numbers))
// _fused_adamw_.tensor_lr, _fused_adam_.tensor_lr
FUSE_SIGNATURE(void(List, List, List, List, List, List, In, double, double, double, double, bool,
    bool, MaybeIn, MaybeIn))
// _fused_adamw_, _fused_adam_
FUSE_SIGNATURE(void(List, List, List, List, List, List, double, double, double, double, double,
    bool, bool, MaybeIn, MaybeIn))
FUSE_SIGNATURE(void(List, List, List, Number)) // _foreach_addcmul_.Scalar, _foreach_addcdiv_.Scalar
FUSE_SIGNATURE(void(List, In)) // _foreach_div_.Tensor, _foreach_mul_.Tensor
FUSE_SIGNATURE(Three(In, Sizes, MaybeIn, MaybeIn, double)) // native_layer_norm
// _native_batch_norm_legit
FUSE_SIGNATURE(Three(In, MaybeIn, MaybeIn, Out, Out, bool, double, double))
FUSE_SIGNATURE(Three(In, MaybeIn, MaybeIn, Size, Size, Size, int64_t, double)) // native_group_norm
// native_batch_norm
FUSE_SIGNATURE(Three(In, MaybeIn, MaybeIn, MaybeIn, MaybeIn, bool, double, double))
// _native_batch_norm_legit_no_training
FUSE_SIGNATURE(Three(In, MaybeIn, MaybeIn, In, In, double, double))
FUSE_SIGNATURE(Three(In, In, Sizes, In, In, MaybeIn, MaybeIn, Mask)) // native_layer_norm_backward
// native_batch_norm_backward
FUSE_SIGNATURE(Three(In, In, MaybeIn, MaybeIn, MaybeIn, MaybeIn, MaybeIn, bool, double, Mask))
// convolution_backward
FUSE_SIGNATURE(Three(In, In, In, MaybeSizes, Sizes, Sizes, Sizes, bool, Sizes, Size, Mask))
// native_group_norm_backward
FUSE_SIGNATURE(Three(In, In, In, In, MaybeIn, Size, Size, Size, int64_t, Mask))
// _scaled_dot_product_flash_attention_for_cpu_backward
FUSE_SIGNATURE(Three(In, In, In, In, In, In, double, bool, MaybeIn, MaybeDouble))
FUSE_SIGNATURE(Two(In, MaybeBool, int64_t, bool)) // sort.stable
FUSE_SIGNATURE(Two(In, Ints)) // adaptive_max_pool2d
FUSE_SIGNATURE(Two(In, Size, int64_t, bool, bool)) // topk
// _scaled_dot_product_flash_attention_for_cpu
FUSE_SIGNATURE(Two(In, In, In, double, bool, MaybeIn, MaybeDouble))
FUSE_SIGNATURE(Tensors(List, MaybeFormat)) // _foreach_clone
FUSE_SIGNATURE(Tensors(List, List, List)) // _foreach_lerp.List
FUSE_SIGNATURE(Tensors(List, List, List, In)) // _foreach_addcmul.Tensor
FUSE_SIGNATURE(Tensors(List, In, Number)) // _foreach_add.Tensor
FUSE_SIGNATURE(Out(Out, MaybeDouble, MaybeDouble, MaybeDouble)) // nan_to_num_
FUSE_SIGNATURE(Out(Out, Out, In, double, double, int64_t)) // _amp_update_scale_
FUSE_SIGNATURE(Out(Out, Text)) // gelu_
FUSE_SIGNATURE(Out(Out, MaybeNumber, MaybeNumber)) // clamp_
FUSE_SIGNATURE(Out(Out, MaybeIn, MaybeIn)) // clamp_.Tensor
FUSE_SIGNATURE(Out(Out, Number, MaybeText)) // div_.Scalar_mode
FUSE_SIGNATURE(Out(Out, Number, Number, Number)) // elu_
FUSE_SIGNATURE(Out(Out, In, MaybeText)) // div_.Tensor_mode
FUSE_SIGNATURE(Out(Out, Indices, In, bool)) // index_put_
FUSE_SIGNATURE(Out(Out, Indices, In, bool, bool)) // _index_put_impl_
FUSE_SIGNATURE(Out(Out, int64_t)) // round_.decimals
FUSE_SIGNATURE(Out(Out, int64_t, In, In, Text, bool)) // scatter_reduce_.two
FUSE_SIGNATURE(Out(Out, int64_t, In, In, Number)) // index_add_
FUSE_SIGNATURE(Tensor(List, int64_t)) // stack
FUSE_SIGNATURE(Tensor(Size, MaybeType, MaybeLayout, MaybeDevice, MaybeBool)) // eye
FUSE_SIGNATURE(Tensor(Size, Size, MaybeType, MaybeLayout, MaybeDevice, MaybeBool)) // eye.m
FUSE_SIGNATURE(Tensor(Sizes, Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool)) // full
FUSE_SIGNATURE(Tensor(Inputs, int64_t)) // cat
// arange.start
FUSE_SIGNATURE(Tensor(Number, Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
// arange.start_step
FUSE_SIGNATURE(Tensor(Number, Number, Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
// linspace
FUSE_SIGNATURE(Tensor(Number, Number, int64_t, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
FUSE_SIGNATURE(Tensor(Number, In, bool, bool)) // isin.Scalar_Tensor
FUSE_SIGNATURE(Tensor(In, MaybeFormat)) // clone
FUSE_SIGNATURE(Tensor(In, MaybeDouble, MaybeDouble, MaybeDouble)) // nan_to_num
FUSE_SIGNATURE(Tensor(In, MaybeInt)) // count_nonzero
FUSE_SIGNATURE(Tensor(In, Ints, Ints, Ints, bool, bool, MaybeInt)) // avg_pool2d
FUSE_SIGNATURE(Tensor(In, Sizes, MaybeDouble, MaybeDouble)) // upsample_nearest2d
FUSE_SIGNATURE(Tensor(In, Sizes, Ints)) // roll
FUSE_SIGNATURE(Tensor(In, Sizes, Sizes, MaybeDouble, MaybeDouble)) // upsample_nearest2d_backward
FUSE_SIGNATURE(Tensor(In, Sizes, Number)) // constant_pad_nd
// new_full
FUSE_SIGNATURE(Tensor(In, Sizes, Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool))
FUSE_SIGNATURE(Tensor(In, Sizes, int64_t, Size)) // select_backward
FUSE_SIGNATURE(Tensor(In, Sizes, int64_t, Size, Size, Size)) // slice_backward
FUSE_SIGNATURE(Tensor(In, Text)) // gelu
FUSE_SIGNATURE(Tensor(In, MaybeNumber, MaybeNumber)) // clamp
FUSE_SIGNATURE(Tensor(In, MaybeIn, MaybeIn)) // clamp.Tensor
// full_like
FUSE_SIGNATURE(Tensor(In, Number, MaybeType, MaybeLayout, MaybeDevice, MaybeBool, MaybeFormat))
FUSE_SIGNATURE(Tensor(In, Number, MaybeText)) // div.Scalar_mode
FUSE_SIGNATURE(Tensor(In, Number, bool, bool, MaybeText, MaybeIn)) // searchsorted.Scalar
FUSE_SIGNATURE(Tensor(In, Number, Number, Number)) // elu
FUSE_SIGNATURE(Tensor(In, Number, Number, Number, bool, In)) // elu_backward
FUSE_SIGNATURE(Tensor(In, In, MaybeText)) // div.Tensor_mode
FUSE_SIGNATURE(Tensor(In, In, Ints, Ints, Ints, bool, bool, MaybeInt)) // avg_pool2d_backward
FUSE_SIGNATURE(Tensor(In, In, bool, bool)) // isin.Tensor_Tensor
FUSE_SIGNATURE(Tensor(In, In, bool, bool, MaybeText, MaybeIn)) // searchsorted.Tensor
FUSE_SIGNATURE(Tensor(In, In, Size, Size, bool)) // embedding_dense_backward
FUSE_SIGNATURE(Tensor(In, In, Text)) // gelu_backward
FUSE_SIGNATURE(Tensor(In, In, MaybeIn, MaybeIn, int64_t)) // binary_cross_entropy_with_logits
FUSE_SIGNATURE(Tensor(In, In, MaybeIn, int64_t)) // binary_cross_entropy
FUSE_SIGNATURE(Tensor(In, In, Number, bool)) // leaky_relu_backward
FUSE_SIGNATURE(Tensor(In, In, In, MaybeIn, int64_t)) // binary_cross_entropy_backward
FUSE_SIGNATURE(Tensor(In, In, double)) // native_dropout_backward
FUSE_SIGNATURE(Tensor(In, In, int64_t, MaybeSize, MaybeSize, Size)) // slice_scatter
FUSE_SIGNATURE(Tensor(In, In, int64_t, Size)) // select_scatter
FUSE_SIGNATURE(Tensor(In, int64_t, bool, MaybeType)) // prod.dim_int
FUSE_SIGNATURE(Tensor(In, int64_t, In)) // index_select
FUSE_SIGNATURE(Tensor(In, int64_t, In, bool)) // gather
FUSE_SIGNATURE(Tensor(In, int64_t, In, In, Text, bool)) // scatter_reduce.two
FUSE_SIGNATURE(Tensor(In, int64_t, In, In, Number)) // index_add
FUSE_SIGNATURE(void(List, Out, In)) // _amp_foreach_non_finite_check_and_unscale_
FUSE_SIGNATURE(void(List, List, List)) // _foreach_lerp_.List
FUSE_SIGNATURE(void(List, List, List, In)) // _foreach_addcmul_.Tensor
// _fused_sgd_.tensor_lr
FUSE_SIGNATURE(void(List, List, List, double, double, In, double, bool, bool, bool, MaybeIn,
    MaybeIn))
// _fused_sgd_
FUSE_SIGNATURE(void(List, List, List, double, double, double, double, bool, bool, bool, MaybeIn,
    MaybeIn))
FUSE_SIGNATURE(void(List, List, bool)) // _foreach_copy_
FUSE_SIGNATURE(void(List, In, Number)) // _foreach_add_.Tensor
FUSE_SIGNATURE(Three(In, In, In, MaybeIn, MaybeIn)) // _thnn_fused_lstm_cell
FUSE_SIGNATURE(Three(MaybeIn, MaybeIn, In, In, In, bool)) // _thnn_fused_lstm_cell_backward_impl
FUSE_SIGNATURE(Two(In, Ints, Ints, Ints, Ints, bool)) // max_pool2d_with_indices
FUSE_SIGNATURE(Tensor(In, In, Ints, Ints, Ints, Ints, bool, In)) // max_pool2d_with_indices_backward
FUSE_SIGNATURE(Tensor(In, Number, MaybeInts, bool, MaybeType)) // linalg_vector_norm
// clang-format on
