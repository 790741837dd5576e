"""Estimators of scikit-learn, XGBoost and LightGBM, converted to ONNX by skl2onnx and onnxmltools."""
