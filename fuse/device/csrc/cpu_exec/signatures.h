// The C++ types of the operators that programs are made of, as `FUSE_SIGNATURE` is defined where
// this is included; two operators of each. An operator of another type is boxed when it runs
// uncompiled.
FUSE_SIGNATURE(at::Tensor(const at::Tensor&)) // acosh, erfc
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, const at::Tensor&)) // hardswish_backward, pow.Tensor_Tensor
FUSE_SIGNATURE(at::Tensor&(at::Tensor&)) // acosh_, erfc_
FUSE_SIGNATURE(at::Tensor&(at::Tensor&, const at::Tensor&)) // pow_.Tensor, div_.Tensor
FUSE_SIGNATURE(std::vector<at::Tensor>(at::TensorList)) // _foreach_cosh, _foreach_exp
FUSE_SIGNATURE(void(at::TensorList)) // _foreach_cosh_, _foreach_exp_
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, const at::Scalar&)) // pow.Tensor_Scalar, div.Scalar
FUSE_SIGNATURE(at::Tensor&(at::Tensor&, const at::Scalar&)) // pow_.Scalar, div_.Scalar
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&, const at::Tensor&, const at::Scalar&)) // rsub.Tensor, masked_fill.Scalar
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList,
        at::ArrayRef<at::Scalar>)) // _foreach_clamp_max.ScalarList, _foreach_div.ScalarList
FUSE_SIGNATURE(
    std::vector<at::Tensor>(at::TensorList, const at::Scalar&)) // _foreach_clamp_max.Scalar,
                                                                // _foreach_div.Scalar
FUSE_SIGNATURE(void(at::TensorList, at::ArrayRef<at::Scalar>)) // _foreach_clamp_max_.ScalarList,
                                                               // _foreach_div_.ScalarList
FUSE_SIGNATURE(
    void(at::TensorList, const at::Scalar&)) // _foreach_clamp_max_.Scalar, _foreach_div_.Scalar
FUSE_SIGNATURE(
    at::Tensor(
        const at::Scalar&, const at::Tensor&)) // pow.Scalar, bitwise_right_shift.Scalar_Tensor
FUSE_SIGNATURE(std::vector<at::Tensor>(at::TensorList, at::TensorList)) // _foreach_clamp_max.List,
                                                                        // _foreach_div.List
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, const at::Scalar&, const at::Scalar&)) // rsub.Scalar, hardtanh
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&, const at::Tensor&, const at::Tensor&)) // where.self, masked_fill.Tensor
FUSE_SIGNATURE(void(at::TensorList, at::TensorList)) // _foreach_clamp_max_.List, _foreach_div_.List
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, c10::SymIntArrayRef)) // _adaptive_avg_pool2d, replication_pad2d
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, int64_t)) // logcumsumexp, _logcumsumexp
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t, bool)) // max.dim, sort
FUSE_SIGNATURE(
    at::Tensor&(at::Tensor&, const at::Scalar&, const at::Scalar&)) // hardtanh_, threshold_
FUSE_SIGNATURE(
    at::Tensor&(at::Tensor&, const at::Tensor&, const at::Scalar&)) // masked_fill_.Scalar,
                                                                    // sub_.Tensor
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&,
        const at::Scalar&)) // addmm_, addmv_
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        c10::SymIntArrayRef)) // reflection_pad2d_backward, replication_pad1d_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&,
        const at::Scalar&)) // addmm, addmv
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&)) // index_copy_, scatter_add_
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, int64_t, bool)) // any.dim, _log_softmax
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList, at::TensorList, const at::Scalar&)) // _foreach_lerp.Scalar,
                                                            // _foreach_add.List
FUSE_SIGNATURE(
    at::Tensor&(at::Tensor&, const at::Tensor&, const at::Tensor&)) // masked_fill_.Tensor,
                                                                    // masked_scatter_
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, std::optional<at::ScalarType>)) // prod, sum
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, at::IntArrayRef, bool)) // amin, logsumexp
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        at::OptionalIntArrayRef,
        bool,
        std::optional<at::ScalarType>)) // sum.dim_IntList, nansum
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, c10::SymInt)) // triu, tril
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        bool,
        std::optional<double>,
        std::optional<double>)) // upsample_bicubic2d, upsample_bilinear2d
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        int64_t)) // soft_margin_loss_backward, mse_loss_backward
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, const at::Tensor&, int64_t)) // mse_loss, glu_backward
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, int64_t, std::optional<at::ScalarType>)) // cumsum, _safe_softmax
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, int64_t, const at::Tensor&, const at::Tensor&)) // scatter_add,
                                                                                  // scatter.src
FUSE_SIGNATURE(void(at::TensorList, at::TensorList, const at::Scalar&)) // _foreach_lerp_.Scalar,
                                                                        // _foreach_add_.List
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)) // log_sigmoid_forward, _aminmax
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&,
        at::OptionalIntArrayRef,
        const std::optional<at::Scalar>&,
        bool)) // var_mean.correction, std_mean.correction
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        int64_t,
        c10::SymInt)) // nll_loss2d_forward, nll_loss_forward
FUSE_SIGNATURE(std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, int64_t)) // cummax, cummin
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::ArrayRef<at::Scalar>)) // _foreach_addcmul.ScalarList, _foreach_addcdiv.ScalarList
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        const at::Scalar&)) // _foreach_addcmul.Scalar, _foreach_addcdiv.Scalar
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList,
        const at::Scalar&,
        std::optional<at::ScalarType>)) // _foreach_norm.Scalar, _foreach_powsum.Scalar
FUSE_SIGNATURE(std::vector<at::Tensor>(at::TensorList, const at::Tensor&)) // _foreach_div.Tensor,
                                                                           // _foreach_mul.Tensor
FUSE_SIGNATURE(at::Tensor&(at::Tensor&, c10::SymInt)) // triu_, tril_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Scalar&)) // addcmul_, addcdiv_
FUSE_SIGNATURE(
    at::Tensor&(at::Tensor&, int64_t, std::optional<at::ScalarType>)) // cumsum_, cumprod_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Scalar&)) // scatter_.value, index_fill_.int_Scalar
FUSE_SIGNATURE(
    at::Tensor(
        c10::SymIntArrayRef,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // zeros, ones
FUSE_SIGNATURE(
    at::Tensor(
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // scalar_tensor, arange
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>,
        std::optional<at::MemoryFormat>)) // ones_like, zeros_like
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, std::optional<int64_t>, bool)) // argmax, argmin
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, at::IntArrayRef)) // flip, count_nonzero.dim_IntList
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, at::OptionalIntArrayRef, bool)) // any.dims, all.dims
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        at::OptionalIntArrayRef,
        const std::optional<at::Scalar>&,
        bool)) // std.correction, var.correction
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // new_zeros, new_ones
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        bool,
        std::optional<double>,
        std::optional<double>)) // upsample_bilinear2d_backward, upsample_bicubic2d_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        int64_t,
        int64_t,
        int64_t)) // diagonal_backward, unfold_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        bool,
        c10::SymIntArrayRef,
        c10::SymInt)) // convolution_overrideable, convolution
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&,
        const at::Scalar&)) // softplus_backward, hardtanh_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        int64_t,
        c10::SymInt,
        const at::Tensor&)) // nll_loss_backward, nll_loss2d_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&)) // addcmul, addcdiv
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        int64_t,
        double)) // smooth_l1_loss_backward, huber_loss_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        int64_t,
        at::ScalarType)) // _log_softmax_backward_data, _softmax_backward_data
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, double)) // huber_loss, smooth_l1_loss
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const c10::List<std::optional<at::Tensor>>&)) // _unsafe_index.Tensor, index.Tensor
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const c10::List<std::optional<at::Tensor>>&,
        const at::Tensor&,
        bool)) // _unsafe_index_put, index_put
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Scalar&)) // scatter.value, index_fill.int_Scalar
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::ArrayRef<at::Scalar>)) // _foreach_addcmul_.ScalarList, _foreach_addcdiv_.ScalarList
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        const at::Tensor&,
        double,
        double,
        double,
        double,
        bool,
        bool,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // _fused_adamw_.tensor_lr, _fused_adam_.tensor_lr
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        at::TensorList,
        double,
        double,
        double,
        double,
        double,
        bool,
        bool,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // _fused_adamw_, _fused_adam_
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        const at::Scalar&)) // _foreach_addcmul_.Scalar, _foreach_addcdiv_.Scalar
FUSE_SIGNATURE(
    void(at::TensorList, const at::Tensor&)) // _foreach_div_.Tensor, _foreach_mul_.Tensor
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        c10::SymIntArrayRef,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        double)) // native_layer_norm
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        at::Tensor&,
        at::Tensor&,
        bool,
        double,
        double)) // _native_batch_norm_legit
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        c10::SymInt,
        c10::SymInt,
        c10::SymInt,
        int64_t,
        double)) // native_group_norm
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        bool,
        double,
        double)) // native_batch_norm
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const at::Tensor&,
        const at::Tensor&,
        double,
        double)) // _native_batch_norm_legit_no_training
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        c10::SymIntArrayRef,
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        std::array<bool, 3>)) // native_layer_norm_backward
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        bool,
        double,
        std::array<bool, 3>)) // native_batch_norm_backward
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        at::OptionalSymIntArrayRef,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        bool,
        c10::SymIntArrayRef,
        c10::SymInt,
        std::array<bool, 3>)) // convolution_backward
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        c10::SymInt,
        c10::SymInt,
        c10::SymInt,
        int64_t,
        std::array<bool, 3>)) // native_group_norm_backward
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        double,
        bool,
        const std::optional<at::Tensor>&,
        std::optional<double>)) // _scaled_dot_product_flash_attention_for_cpu_backward
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&, std::optional<bool>, int64_t, bool)) // sort.stable
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, at::IntArrayRef)) // adaptive_max_pool2d
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, c10::SymInt, int64_t, bool, bool)) // topk
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        double,
        bool,
        const std::optional<at::Tensor>&,
        std::optional<double>)) // _scaled_dot_product_flash_attention_for_cpu
FUSE_SIGNATURE(
    std::vector<at::Tensor>(at::TensorList, std::optional<at::MemoryFormat>)) // _foreach_clone
FUSE_SIGNATURE(
    std::vector<at::Tensor>(at::TensorList, at::TensorList, at::TensorList)) // _foreach_lerp.List
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        const at::Tensor&)) // _foreach_addcmul.Tensor
FUSE_SIGNATURE(
    std::vector<at::Tensor>(
        at::TensorList, const at::Tensor&, const at::Scalar&)) // _foreach_add.Tensor
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        std::optional<double>,
        std::optional<double>,
        std::optional<double>)) // nan_to_num_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, at::Tensor&, const at::Tensor&, double, double, int64_t)) // _amp_update_scale_
FUSE_SIGNATURE(at::Tensor&(at::Tensor&, c10::string_view)) // gelu_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, const std::optional<at::Scalar>&, const std::optional<at::Scalar>&)) // clamp_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // clamp_.Tensor
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, const at::Scalar&, std::optional<c10::string_view>)) // div_.Scalar_mode
FUSE_SIGNATURE(
    at::Tensor&(at::Tensor&, const at::Scalar&, const at::Scalar&, const at::Scalar&)) // elu_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&, const at::Tensor&, std::optional<c10::string_view>)) // div_.Tensor_mode
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        const c10::List<std::optional<at::Tensor>>&,
        const at::Tensor&,
        bool)) // index_put_
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        const c10::List<std::optional<at::Tensor>>&,
        const at::Tensor&,
        bool,
        bool)) // _index_put_impl_
FUSE_SIGNATURE(at::Tensor&(at::Tensor&, int64_t)) // round_.decimals
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Tensor&,
        c10::string_view,
        bool)) // scatter_reduce_.two
FUSE_SIGNATURE(
    at::Tensor&(
        at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&)) // index_add_
FUSE_SIGNATURE(at::Tensor(at::TensorList, int64_t)) // stack
FUSE_SIGNATURE(
    at::Tensor(
        c10::SymInt,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // eye
FUSE_SIGNATURE(
    at::Tensor(
        c10::SymInt,
        c10::SymInt,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // eye.m
FUSE_SIGNATURE(
    at::Tensor(
        c10::SymIntArrayRef,
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // full
FUSE_SIGNATURE(at::Tensor(const at::ITensorListRef&, int64_t)) // cat
FUSE_SIGNATURE(
    at::Tensor(
        const at::Scalar&,
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // arange.start
FUSE_SIGNATURE(
    at::Tensor(
        const at::Scalar&,
        const at::Scalar&,
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // arange.start_step
FUSE_SIGNATURE(
    at::Tensor(
        const at::Scalar&,
        const at::Scalar&,
        int64_t,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // linspace
FUSE_SIGNATURE(at::Tensor(const at::Scalar&, const at::Tensor&, bool, bool)) // isin.Scalar_Tensor
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, std::optional<at::MemoryFormat>)) // clone
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        std::optional<double>,
        std::optional<double>,
        std::optional<double>)) // nan_to_num
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, std::optional<int64_t>)) // count_nonzero
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        bool,
        bool,
        std::optional<int64_t>)) // avg_pool2d
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        std::optional<double>,
        std::optional<double>)) // upsample_nearest2d
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, c10::SymIntArrayRef, at::IntArrayRef)) // roll
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        c10::SymIntArrayRef,
        std::optional<double>,
        std::optional<double>)) // upsample_nearest2d_backward
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, c10::SymIntArrayRef, const at::Scalar&)) // constant_pad_nd
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>)) // new_full
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, c10::SymIntArrayRef, int64_t, c10::SymInt)) // select_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        c10::SymIntArrayRef,
        int64_t,
        c10::SymInt,
        c10::SymInt,
        c10::SymInt)) // slice_backward
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, c10::string_view)) // gelu
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const std::optional<at::Scalar>&,
        const std::optional<at::Scalar>&)) // clamp
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // clamp.Tensor
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Scalar&,
        std::optional<at::ScalarType>,
        std::optional<at::Layout>,
        std::optional<at::Device>,
        std::optional<bool>,
        std::optional<at::MemoryFormat>)) // full_like
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&, const at::Scalar&, std::optional<c10::string_view>)) // div.Scalar_mode
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Scalar&,
        bool,
        bool,
        std::optional<c10::string_view>,
        const std::optional<at::Tensor>&)) // searchsorted.Scalar
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, const at::Scalar&, const at::Scalar&, const at::Scalar&)) // elu
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Scalar&,
        const at::Scalar&,
        const at::Scalar&,
        bool,
        const at::Tensor&)) // elu_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&, const at::Tensor&, std::optional<c10::string_view>)) // div.Tensor_mode
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        bool,
        bool,
        std::optional<int64_t>)) // avg_pool2d_backward
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, const at::Tensor&, bool, bool)) // isin.Tensor_Tensor
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        bool,
        bool,
        std::optional<c10::string_view>,
        const std::optional<at::Tensor>&)) // searchsorted.Tensor
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        c10::SymInt,
        c10::SymInt,
        bool)) // embedding_dense_backward
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view)) // gelu_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        int64_t)) // binary_cross_entropy_with_logits
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        int64_t)) // binary_cross_entropy
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&, const at::Tensor&, const at::Scalar&, bool)) // leaky_relu_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        int64_t)) // binary_cross_entropy_backward
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, const at::Tensor&, double)) // native_dropout_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        int64_t,
        std::optional<c10::SymInt>,
        std::optional<c10::SymInt>,
        c10::SymInt)) // slice_scatter
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, const at::Tensor&, int64_t, c10::SymInt)) // select_scatter
FUSE_SIGNATURE(
    at::Tensor(const at::Tensor&, int64_t, bool, std::optional<at::ScalarType>)) // prod.dim_int
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, int64_t, const at::Tensor&)) // index_select
FUSE_SIGNATURE(at::Tensor(const at::Tensor&, int64_t, const at::Tensor&, bool)) // gather
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Tensor&,
        c10::string_view,
        bool)) // scatter_reduce.two
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        int64_t,
        const at::Tensor&,
        const at::Tensor&,
        const at::Scalar&)) // index_add
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::Tensor&,
        const at::Tensor&)) // _amp_foreach_non_finite_check_and_unscale_
FUSE_SIGNATURE(void(at::TensorList, at::TensorList, at::TensorList)) // _foreach_lerp_.List
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        const at::Tensor&)) // _foreach_addcmul_.Tensor
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        double,
        double,
        const at::Tensor&,
        double,
        bool,
        bool,
        bool,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // _fused_sgd_.tensor_lr
FUSE_SIGNATURE(
    void(
        at::TensorList,
        at::TensorList,
        at::TensorList,
        double,
        double,
        double,
        double,
        bool,
        bool,
        bool,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // _fused_sgd_
FUSE_SIGNATURE(void(at::TensorList, at::TensorList, bool)) // _foreach_copy_
FUSE_SIGNATURE(void(at::TensorList, const at::Tensor&, const at::Scalar&)) // _foreach_add_.Tensor
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&)) // _thnn_fused_lstm_cell
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor, at::Tensor>(
        const std::optional<at::Tensor>&,
        const std::optional<at::Tensor>&,
        const at::Tensor&,
        const at::Tensor&,
        const at::Tensor&,
        bool)) // _thnn_fused_lstm_cell_backward_impl
FUSE_SIGNATURE(
    std::tuple<at::Tensor, at::Tensor>(
        const at::Tensor&,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        bool)) // max_pool2d_with_indices
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Tensor&,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        at::IntArrayRef,
        bool,
        const at::Tensor&)) // max_pool2d_with_indices_backward
FUSE_SIGNATURE(
    at::Tensor(
        const at::Tensor&,
        const at::Scalar&,
        at::OptionalIntArrayRef,
        bool,
        std::optional<at::ScalarType>)) // linalg_vector_norm
